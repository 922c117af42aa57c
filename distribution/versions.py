"""Where the project states its version, and whether all places agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PLACES = {
    "src/dpsketch/__init__.py": r'^__version__ = "([^"]+)"$',
    "CITATION.cff": r"^version: (\S+)$",
    "CHANGELOG.md": r"^## (\S+) \(",
}
_DATED = re.compile(r"^## \S+ \((\d{4}-\d\d-\d\d)\)$", re.MULTILINE)


class NotReady(Exception):
    """The project cannot be released as it is."""


def agreed_version(root: Path, *, trial: bool) -> str:
    """Return the version of ``pyproject.toml`` if every other place states it and the changelog dates it.

    A trial does without the date.
    """
    version = str(tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
    for place, pattern in PLACES.items():
        found = re.search(pattern, (root / place).read_text(encoding="utf-8"), re.MULTILINE)
        stated = found[1] if found else "no version"
        if stated != version:
            raise NotReady(f"pyproject.toml states version {version} and {place} {stated}: make them agree.")
    newest = re.search(r"^## .*$", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    if not trial and not (newest and _DATED.match(newest[0])):
        raise NotReady(f"the changelog's entry for {version} has no date: write '## {version} (YYYY-MM-DD)'.")
    return version
