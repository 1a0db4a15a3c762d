"""Add the files of the library that the tagger needs to its wheel and to its sdist.

They live once, in the folder of the library (`src/kernelcrf`), and import each other by relative names. An sdist has
copies of them, from which a wheel can be built without the library's folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "kernelcrf_tagger"


class SharedFiles(BuildHookInterface):
    """Adds the files that pyproject.toml lists."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files of the checkout; those of an sdist are in the package already."""
        checkout = Path(self.root).parent
        library = checkout / "src" / "kernelcrf"
        if version == "editable":
            raise RuntimeError("kernelcrf-tagger cannot be installed in editable mode: use pip install ./tagger")
        if not (Path(self.root) / PACKAGE / "arrays.py").exists():
            files = {str(library / name): f"{PACKAGE}/{name}" for name in self.config["files"]}
            build_data["force_include"].update({**files, str(checkout / "LICENSE"): f"{PACKAGE}/LICENSE"})
