"""CONTRIBUTING.md as a newcomer follows it: the files it says to save, and the row it says to add."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent
_TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

SAVED: dict[str, str] = dict(
    re.findall(r"^Save as `([^`]+)`:\n\n```python\n(.*?)^```$", _TEXT, re.MULTILINE | re.DOTALL)
)
"""What is saved, by where."""

_ADDED = re.search(
    r"^Add to `([^`]+)`, as the last row of the table,[^\n]+:\n\n```python\n(.*?)^```$", _TEXT, re.MULTILINE | re.DOTALL
)
assert _ADDED is not None
TABLE, ROW = _ADDED[1], _ADDED[2]
"""The file of the table of kinds, and the row to add to it."""


def follow(root: Path) -> None:
    """Save and add what the page says, in a copy of the project."""
    for name, text in SAVED.items():
        (root / name).write_text(text, encoding="utf-8")
    table = root / TABLE
    before, end = table.read_text(encoding="utf-8"), "    )\n}\n"
    assert before.endswith(end), "the table of kinds no longer ends with its rows: say where the new one goes"
    table.write_text(before.removesuffix(end) + textwrap.indent(ROW.strip(), 8 * " ") + ",\n" + end, encoding="utf-8")
