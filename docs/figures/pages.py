"""Tables of pages that commands write: each lies between two comments that name its writer.

What was written is kept in ``written.json`` too, by page and name. A number that somebody changes in a page by hand is
not there, and a test says so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
KEPT = Path(__file__).parent / "written.json"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def write_table(page: Path, name: str, text: str) -> None:
    """Put a text into a page, in place of what lies between the comments of its name."""
    begin, end = f"<!-- {name} -->\n", "<!-- end -->\n"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    assert found, f"{page} has no place for {name!r}"
    page.write_text(f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}", encoding="utf-8")
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    kept.setdefault(str(page.resolve().relative_to(ROOT)), {})[name] = text
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
