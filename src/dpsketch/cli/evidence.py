"""Commands that check the library's own claims: audit, which attacks its mechanisms, and reproduce, of the papers."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from dpsketch.cli.options import FILE, argument, command, json_option, one_of, option
from dpsketch.cli.output import print_json, say, table

if TYPE_CHECKING:
    from dpsketch.reproduce import Reproduction

__all__ = ["audit", "reproduce"]


@command()
@argument("mechanisms", "MECHANISM…", "Mechanisms to audit, by the beginning of a name; all by default.", nargs=-1)
@option("--trials", type=int, default=4000, help="Number of runs of each mechanism on each of two datasets.")
@option("--output", "--plot", "-o", "output", type=FILE, help="Picture to draw the findings into.")
@json_option
@click.pass_context
def audit(ctx: click.Context, mechanisms: tuple[str, ...], trials: int, output: Path | None, as_json: bool) -> None:
    """Attack mechanisms, and measure the ε that an attacker gets.

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
        mechanisms, trials=trials, progress=lambda name, done, total: say(f"[{done + 1}/{total}] {name}")
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
        ctx.exit(1)


_Paper = Literal["countsketch", "alp", "moments", "privsketch", "race", "all"]


@command()
@argument("paper", "PAPER", "Paper: countsketch, alp, moments, privsketch, race, or all.", type=one_of(_Paper))
@option("--output", "-o", type=FILE, required=True, help="Folder for reports and figures.")
@option("--quick", is_flag=True, help="Fewer repetitions and smaller data, in a minute or two.")
@option("--jobs", type=int, help="Number of papers at a time; by default one per core.")
@json_option
@click.pass_context
def reproduce(ctx: click.Context, paper: str, output: Path, quick: bool, jobs: int | None, as_json: bool) -> None:
    """Reproduce the figures and tables of the papers, and check them.

    Exit 1, naming it, if a number is outside its limits. Real data is read from the folder $DPSKETCH_DATA; without it
    the report says what was left out.
    """
    from dpsketch.reproduce import PAPERS, write_index

    names = PAPERS if paper == "all" else (paper,)
    workers = min(len(names), jobs or os.cpu_count() or 1)
    if workers == 1:
        found = [_one(name, output, quick=quick) for name in names]
    else:
        from concurrent.futures import ProcessPoolExecutor, as_completed
        from multiprocessing import get_context

        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            pending = [pool.submit(partial(_one, quick=quick), name, output) for name in names]
            for done in as_completed(pending):
                say(f"{done.result().paper}: done in {done.result().seconds:.0f} s")
            found = [future.result() for future in pending]
    if paper == "all":
        write_index(found, output)
    _show(found, output, as_json=as_json)
    failures = [f"{one.paper}: {line}" for one in found for line in one.failures]
    if failures:
        say("dpsketch: not reproduced:\n  " + "\n  ".join(failures))
        ctx.exit(1)


def _one(name: str, output: Path, *, quick: bool) -> Reproduction:
    from dpsketch import reproduce as reproducing

    folder = output / name
    found = reproducing.reproduce(name, folder, quick=quick, progress=lambda text: say(f"{name}: {text}"))
    reproducing.write_report(found, folder)
    return found


def _show(found: list[Reproduction], output: Path, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                one.paper: {
                    "numbers": {
                        name: {"paper": number.number.paper, "reproduced": number.reproduced, "ours": number.ours}
                        for name, number in one.outcomes.items()
                    },
                    "failures": one.failures,
                    "left_out": one.left_out,
                }
                for one in found
            }
        )
        return
    for one in found:
        table(
            ["number", "paper", "reproduced", "ours"],
            [
                [
                    number.number.what,
                    *(_short(value) for value in (number.number.paper, number.reproduced, number.ours)),
                ]
                for number in one.outcomes.values()
            ],
            title=one.title,
        )
        for line in one.left_out:
            say(f"{one.paper}: left out: {line}")
    say(f"Wrote {output}.")


def _short(value: float | None) -> str:
    from dpsketch.reproduce import shown

    return "–" if value is None else shown(value)
