"""Files of the repository that are pages of the site: links between them hold in both places.

In the repository a page of docs/ links to `../CHANGELOG.md`; on the site that file is the page `changelog`,
which includes it.
"""

import posixpath
import re
from pathlib import Path

from sphinx.application import Sphinx

PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
}
LAST_LINE = re.compile(r"(```python\n(?:(?!```).)*?)\n\n```\n", re.DOTALL)
LINK = re.compile(r"(\]\()([^)#\s]+)")


def rewritten(text: str, folder: str, page_folder: str) -> str:
    """Return a file of `folder` with links as a page in `page_folder` needs them; both are paths from the root."""

    def target(match: re.Match[str]) -> str:
        link = match[2]
        if ":" in link:
            return match[0]
        path = posixpath.normpath(posixpath.join(folder, link))
        home = posixpath.join("docs", PAGES[path]) if path in PAGES else path
        if home == path and folder == page_folder:
            return match[0]
        return match[1] + posixpath.relpath(home, page_folder)

    return LINK.sub(target, text)


def read_page(app: Sphinx, docname: str, source: list[str]) -> None:
    """Rewrite the links of a page of docs/."""
    # The empty line after an example is for doctest; nobody needs to see it.
    source[0] = LAST_LINE.sub(r"\1\n```\n", source[0])
    folder = posixpath.dirname(posixpath.join("docs", docname))
    source[0] = rewritten(source[0], folder, folder)


def read_included(app: Sphinx, path: Path, parent: str, source: list[str]) -> None:
    """Rewrite the links of a file of the repository that a page includes."""
    root = Path(app.srcdir).parent
    file = (Path(app.srcdir) / path).resolve()
    if file.is_relative_to(root):
        folder = file.relative_to(root).parent.as_posix()
        folder = "" if folder == "." else folder
        source[0] = rewritten(source[0], folder, posixpath.dirname(posixpath.join("docs", parent)))


def setup(app: Sphinx) -> dict[str, bool]:
    """Listen to what is read."""
    app.connect("source-read", read_page)
    app.connect("include-read", read_included)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
