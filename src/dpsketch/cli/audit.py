"""The command that audits the library's own claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpsketch.cli.options import JsonOption
from dpsketch.cli.output import print_json, say, table

__all__ = ["audit"]


def audit(
    mechanisms: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MECHANISM…]", help="What to audit; the beginning of a name takes all that begin so."),
    ] = None,
    trials: Annotated[int, typer.Option("--trials", help="Runs of each mechanism on each of two datasets.")] = 4000,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", "--plot", help="Draw the findings into this file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Attack every mechanism on its worst neighbours, and say what ε an attacker really gets.

    The names that begin with "table" go through both units, both relations and five pairs of neighbours each. A lower
    bound above the claim, which is read from the printed guarantee, refutes it; exit 1 if that happens to anything that
    is shipped as private. The power is the share of the noise due that would have been caught. What is kept as
    published, for comparison, is expected to be violated.
    """
    from dpsketch import plots
    from dpsketch.audit import audit_mechanisms

    if output is not None:
        plots.check_ending(output)
    report = audit_mechanisms(
        mechanisms or (), trials=trials, progress=lambda name, done, total: say(f"[{done + 1}/{total}] {name}")
    )
    if output is not None:
        plots.save(report.plot(), output)
        say(f"Wrote {output}.")
    if as_json:
        print_json(report.to_json())
    else:
        table(
            ["mechanism", "claimed ε", "at δ", "audited ε ≥", "verdict", "method", "power"],
            [
                [
                    found.name,
                    f"{found.claim.epsilon:.3f}",
                    f"{found.claim.delta:g}",
                    f"{found.audited_epsilon:.3f}",
                    found.verdict if found.shipped else f"{found.verdict} (as published)",
                    found.method,
                    f"×{found.power:.2f}" if found.power else "–",
                ]
                for found in report.findings
            ],
        )
        say(f"Each bound is wrong with probability at most {1 - report.confidence:.0e}; {trials} trials.")
    if report.broken:
        names = ", ".join(found.name for found in report.broken)
        say(f"dpsketch: violated, although shipped as private: {names}. Do not publish with it, and report this.")
        raise typer.Exit(1)
