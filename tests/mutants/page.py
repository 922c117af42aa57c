"""The table of mutants in the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.mutants.gate import Verdict

_BEGIN, _END = "<!-- table: written by make mutants -->\n", "<!-- end of table -->\n"


def line_of(verdict: Verdict) -> str:
    """One mutant's row of the table, in Markdown."""
    mutant = verdict.mutant
    by = verdict.by.removeprefix("tests/").partition("[")[0]
    return f"| {mutant.name} | `{mutant.where}` | {mutant.breaks} | `{by}` |"


def write_table(page: Path, verdicts: Sequence[Verdict], names: Sequence[str]) -> None:
    """Put these verdicts into the table, beside what it has of others among the names, in their order."""
    before, _, rest = page.read_text().partition(_BEGIN)
    table, _, after = rest.partition(_END)
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in table.splitlines()[3:] if line}
    lines |= {verdict.mutant.name: line_of(verdict) for verdict in verdicts}
    rows = [lines[name] for name in names if name in lines]
    head = ["| mutant | where | what it breaks | noticed by |", "|---|---|---|---|"]
    page.write_text(f"{before}{_BEGIN}\n" + "\n".join([*head, *rows]) + f"\n\n{_END}{after}")
