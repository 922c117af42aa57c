"""The table in the documentation."""

from __future__ import annotations

import math
from pathlib import Path

from benchmarks.coverage.measuring import Row

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "coverage.md"
BEGIN = "<!-- coverage: made by `make coverage`, not by hand -->"
END = "<!-- end of coverage -->"
_HEAD = (
    "| kind | answer | data | noise | nominal | covered | width | limit | releases × intervals |\n"
    "|---|---|---|---|---|---|---|---|---|\n"
)


def line(row: Row) -> str:
    """Return one row of the table."""
    covered = f"**{row.covered:.1f}**" if row.short else f"{row.covered:.1f}"
    width = "–" if math.isnan(row.waste) else f"{row.waste:.2f}"
    counts = f"{row.releases:,} × {row.intervals / row.releases:,.0f}"
    cells = (row.kind, row.answer, row.setting, row.budget, f"{row.nominal:.0f}", covered, width)
    return f"| {' | '.join(cells)} | {row.limit:.1f} | {counts} |"


def write(rows: list[Row], page: Path = PAGE) -> None:
    """Put the table into the page's generated block."""
    text = page.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    table = _HEAD + "\n".join(line(row) for row in rows)
    page.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}")
