"""The command that reproduces the papers."""

from __future__ import annotations

import os
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsketch.cli.options import JsonOption
from dpsketch.cli.output import print_json, say, table

if TYPE_CHECKING:
    from dpsketch.reproduce import Reproduction

__all__ = ["reproduce"]


class PaperName(StrEnum):
    """The papers, and all of them."""

    COUNTSKETCH = "countsketch"
    ALP = "alp"
    MOMENTS = "moments"
    PRIVSKETCH = "privsketch"
    RACE = "race"
    ALL = "all"


def reproduce(
    paper: Annotated[
        PaperName, typer.Argument(metavar="PAPER", help="countsketch, alp, moments, privsketch, race, all.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for reports and figures.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer repetitions and smaller data, in a minute or two.")
    ] = False,
    jobs: Annotated[int | None, typer.Option("--jobs", help="Papers at once; by default one a core.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a paper's figures and tables again, ours beside them, and check every number.

    Exit 1, naming it, if a number is outside its limits. Real data is read from the folder $DPSKETCH_DATA; without it
    the report says what was left out.
    """
    from dpsketch.reproduce import PAPERS, write_index

    names = PAPERS if paper is PaperName.ALL else (paper.value,)
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
    if paper is PaperName.ALL:
        write_index(found, output)
    _show(found, output, as_json=as_json)
    failures = [f"{one.paper}: {line}" for one in found for line in one.failures]
    if failures:
        say("dpsketch: not reproduced:\n  " + "\n  ".join(failures))
        raise typer.Exit(1)


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
    from dpsketch.reproduce.expected import shown

    return "–" if value is None else shown(value)
