"""Prepare what the package index shows: the README with addresses that work there, and the project's links.

Links and pictures of README.md are relative, so that they work wherever the repository is hosted. A package index
needs absolute ones, and only a host knows its address: a workflow on GitHub tells it by GITHUB_SERVER_URL,
GITHUB_REPOSITORY and GITHUB_SHA. Built anywhere else, the page has the text of the links, leaves the pictures out, and
names no address.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")
NAMES = {"GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_SHA"}


class AddressedMetadata(MetadataHookInterface):
    """Sets the dynamic fields `readme` and `urls`."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Add both fields."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": addressed(text, os.environ)}
        metadata["urls"] = urls(os.environ)


def addressed(text: str, environment: Mapping[str, str]) -> str:
    """Return the README with absolute addresses if the host is known, and without them if it is not."""
    known = set(environment) >= NAMES

    def replaced(match: re.Match[str]) -> str:
        is_picture, label, path = match.groups()
        if not known:
            return "" if is_picture else label
        kind = "raw" if is_picture else "blob"
        return f"{is_picture}[{label}]({_home(environment)}/{kind}/{environment['GITHUB_SHA']}/{path})"

    return LINK.sub(replaced, text)


def urls(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the links beside the page."""
    if not set(environment) >= NAMES:
        return {}
    home = _home(environment)
    return {
        "Repository": home,
        "Changelog": f"{home}/blob/main/CHANGELOG.md",
        "Issues": f"{home}/issues",
    }


def _home(environment: Mapping[str, str]) -> str:
    return f"{environment['GITHUB_SERVER_URL']}/{environment['GITHUB_REPOSITORY']}"
