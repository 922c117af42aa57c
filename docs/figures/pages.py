"""Tables of pages that commands write: each lies between two comments that name its writer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


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
