"""The table of mutants in the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.mutants.gate import Verdict

_BEGIN, _END = "<!-- table: written by make mutants -->\n", "<!-- end of table -->\n"


def table_of(verdicts: Sequence[Verdict]) -> str:
    """The table in Markdown, one mutant a row."""
    lines = ["| mutant | file | what it breaks | noticed by |", "|---|---|---|---|"]
    for verdict in verdicts:
        mutant = verdict.mutant
        by = verdict.by.removeprefix("tests/").partition("[")[0]
        lines.append(f"| {mutant.name} | `{mutant.file}` | {mutant.breaks} | `{by}` |")
    return "\n".join(lines) + "\n"


def write_table(page: Path, verdicts: Sequence[Verdict]) -> None:
    """Put the table where the page has its mark."""
    before, _, rest = page.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    page.write_text(f"{before}{_BEGIN}\n{table_of(verdicts)}\n{_END}{after}")
