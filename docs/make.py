"""Build the documentation site, and check it.

    python docs/make.py                    examples on pages, spelling, the site with its gallery, links
    python docs/make.py --fast             the same without running the gallery
    python docs/make.py --external         addresses of other sites too, which needs a network

Needs `pip install -e '.[docs]'`. Examples on pages and spelling are checked if the extra `dev` is installed too.
The site is in docs/_build/html. Warnings of Sphinx are errors.
"""

import argparse
import os
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

DOCS = Path(__file__).parent
ROOT = DOCS.parent
HTML = DOCS / "_build" / "html"
CHECKERS = ("pytest", "hypothesis", "codespell_lib")


class Page(HTMLParser):
    """The anchors of a page, and the links that it contains."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Collect ids and links."""
        for name, value in attributes:
            if value and (name == "id" or (tag == "a" and name == "name")):
                self.places.add(value)
            elif value and name in ("href", "src"):
                self.links.append(value)


def dead_links(folder: Path) -> list[str]:
    """Return the links between pages of a folder that lead nowhere, each with its page."""
    pages = {
        path: Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html") if "_static" not in path.parts
    }
    dead = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            target = target / "index.html" if target.is_dir() else target
            inside = pages.get(target)
            there = target.is_file() and (not parts.fragment or inside is None or parts.fragment in inside.places)
            if not there:
                dead.append(f"{path.relative_to(folder)}: {link}")
    return sorted(set(dead))


def sphinx(builder: str, *, gallery: bool) -> None:
    """Run Sphinx with warnings as errors."""
    command = [sys.executable, "-m", "sphinx", "-b", builder, "-E", "-W", "--keep-going", "-n", "-q"]
    environment = os.environ | {"KERNELCRF_GALLERY": str(int(gallery))}
    subprocess.run([*command, str(DOCS), str(DOCS / "_build" / builder)], check=True, env=environment)


def main() -> None:
    """Run the checks that the options select; exit with the code 1 if one of them fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", action="store_true", help="do not run the gallery")
    parser.add_argument("--external", action="store_true", help="check addresses of other sites too")
    asked = parser.parse_args()
    if all(map(find_spec, CHECKERS)):
        subprocess.run([sys.executable, "-m", "pytest", "-q", str(ROOT / "tests" / "docs")], check=True, cwd=ROOT)
        subprocess.run([sys.executable, "-m", "codespell_lib"], check=True, cwd=ROOT)
    else:
        print("examples on pages and spelling are not checked: install the extra dev too")
    # Pages of names that are gone would stay, and links to them look alive. Examples run again where they changed.
    for made in (HTML, DOCS / "api" / "generated"):
        shutil.rmtree(made, ignore_errors=True)
    sphinx("html", gallery=not asked.fast)
    dead = dead_links(HTML)
    print("\n".join(dead) or f"no dead link in {HTML}")
    if asked.external:
        sphinx("linkcheck", gallery=False)
    sys.exit(1 if dead else 0)


if __name__ == "__main__":
    main()
