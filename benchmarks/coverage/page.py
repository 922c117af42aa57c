"""The table in the documentation."""

from __future__ import annotations

import math
from pathlib import Path

from benchmarks.coverage.measuring import Row
from benchmarks.coverage.stored import Result

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "coverage.md"
BEGIN = "<!-- coverage: made by `make coverage`, not by hand -->"
END = "<!-- end of coverage -->"
_HEAD = (
    "| kind | answer | data | noise | nominal | covered | width | limit | releases × intervals |\n"
    "|---|---|---|---|---|---|---|---|---|\n"
)


OLDER = " °"


def line(row: Row, *, current: bool = True) -> str:
    """Return one row of the table; one that is older than the code is marked."""
    covered = f"**{row.covered:.1f}**" if row.short else f"{row.covered:.1f}"
    width = "∞" if math.isinf(row.waste) else "–" if math.isnan(row.waste) else f"{row.waste:.2f}"
    counts = f"{row.releases:,} × {row.intervals / row.releases:,.0f}"
    answer = row.answer if current else row.answer + OLDER
    cells = (row.kind, answer, row.setting, row.budget, f"{row.nominal:.0f}", covered, width)
    return f"| {' | '.join(cells)} | {row.limit:.1f} | {counts} |"


def write(results: dict[str, Result | None], page: Path = PAGE) -> None:
    """Put the table into the page's generated block: results by the names of their cases, None where there is none."""
    text = page.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    known = [each for each in results.values() if each is not None]
    older = sum(len(each.rows) for each in known if not each.current)
    missing = [f"*{name}*" for name, each in results.items() if each is None]
    dates = sorted({each.measured for each in known})
    words = f"Measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))}.\n\n" if dates else ""
    words += f"{older:,} rows, marked °, are older than the code that they are about.\n\n" if older else ""
    words += f"Not measured yet: {'; '.join(missing)}.\n\n" if missing else ""
    table = _HEAD + "\n".join(line(row, current=each.current) for each in known for row in each.rows)
    page.write_text(f"{before}{BEGIN}\n\n{words}{table}\n\n{END}{after}")
