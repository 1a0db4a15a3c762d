"""The documentation site. `python docs/make.py` builds and checks it."""

import os
import sys
from importlib.metadata import version as version_of
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))
os.environ.setdefault("MPLBACKEND", "agg")

project = "kernelcrf"
author = "The kernelcrf developers"
copyright = author
version = release = version_of("kernelcrf")
language = "en-GB"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "docstrings",
    "repository_links",
]
exclude_patterns = ["_build", "_extensions", "gallery/**.ipynb", "gallery/**.py", "gallery/**.zip"]
templates_path = ["_templates"]
default_role = "code"
nitpicky = True
toc_object_entries_show_parents = "hide"
suppress_warnings = ["config.cache"]

# Only a host knows the address of the repository: a workflow on GitHub tells it.
server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
repository = f"{server}/{name}" if server and name else None

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "smartquotes", "substitution"]
myst_substitutions = {"version": release, "repository": f" of the [repository]({repository})" if repository else ""}
myst_heading_anchors = 4

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_use_plots = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "plot_",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "plot_gallery": os.environ.get("KERNELCRF_GALLERY", "1") == "1",
    "within_subsection_order": "gallery_order.Order",
    "min_reported_time": 1e9,
    "write_computation_times": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "kernelcrf"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "kernelcrf"},
    "header_links_before_dropdown": 8,
    "navbar_align": "left",
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
if repository:
    html_theme_options["icon_links"] = [{"name": "Repository", "url": repository, "icon": "fa-brands fa-github"}]
html_sidebars = {"index": [], "getting_started": [], "primer": []}
