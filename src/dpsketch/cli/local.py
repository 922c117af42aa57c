"""The local model: local report, collect, estimate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsketch.cli.exits import OutputExists
from dpsketch.cli.options import JsonOption, KeyKind, StdinFormat, read_lines
from dpsketch.cli.output import print_estimates, print_json, progress_bar, say
from dpsketch.cli.query import Confidence
from dpsketch.errors import InvalidInput

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType

__all__ = ["app"]

app = typer.Typer(
    help="People randomise their own items before anyone sees them; you collect and estimate.", no_args_is_help=True
)

SpecFile = Annotated[Path, typer.Option("--spec", help="The protocol, a JSON file that everyone shares.")]


@app.command()
def report(
    source: Annotated[list[str], typer.Argument(metavar="SOURCE…", help="Records of people and their items.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Reports: JSON lines (.jsonl) or compact bytes.")],
    spec: SpecFile,
    user: Annotated[str, typer.Option("--user", help="The column that says whose item it is.")],
    key: Annotated[str, typer.Option("--key", help="The column that holds the item.")],
    epsilon: Annotated[float | None, typer.Option("--epsilon", "-e", help="Starts a new spec: ε of a report.")] = None,
    max_items: Annotated[
        int | None, typer.Option("--max-items", help="Starts a new spec: items of a person that count.")
    ] = None,
    key_type: Annotated[
        KeyKind | None, typer.Option("--key-type", help="CSV and TSV keys are text unless int.")
    ] = None,
    stdin_format: Annotated[StdinFormat, typer.Option("--format", help="What standard input holds.")] = StdinFormat.CSV,
) -> None:
    """Randomise each person's set of items, as their device would. With --epsilon a new spec is written first."""
    import pyarrow as pa

    from dpsketch import local
    from dpsketch.sources import Columns, open_source

    if output.exists():
        raise OutputExists(
            f"{output} exists: a person's second report would spend their budget again. Name a new file."
        )
    if epsilon is None:
        protocol: Any = local.read_spec(spec)
    elif max_items is None:
        raise InvalidInput("a new spec needs --max-items: at most so many of a person's items count.")
    elif spec.exists():
        raise OutputExists(f"{spec} exists: leave --epsilon out to use it, or name a new file.")
    else:
        fixed: KeyType | None = None if key_type is None else key_type.value
        protocol = local.SubsetHashing(epsilon=epsilon, max_items=max_items, key_type=fixed)
        local.write_spec(spec, protocol)
    columns = Columns(key=key, user=user, key_type=protocol.key_type)
    with progress_bar("reading") as progress:
        batches = list(open_source(source, columns, stdin_format=stdin_format.value, progress=progress))
    users, keys = (pa.chunked_array([getattr(b, name) for b in batches if b.rows]) for name in ("user", "key"))
    sets = local.group_by_person(users, keys)
    written = local.write_reports(output, protocol, protocol.report(sets))
    _report_cut(protocol, sets)
    say(f"Wrote {written:,} reports to {output}. Guarantee of each: {protocol.guarantee}")


def _report_cut(protocol: Any, sets: Any) -> None:
    """Tell the data holder, and nobody else, how much the cap on a person's items cut."""
    import numpy as np

    from dpsketch import local
    from dpsketch.local.sets import read_people

    if protocol.unit.level == "record" or not len(people := read_people(sets, protocol.key_type)):
        return
    loss = local.SizeDistribution.from_sizes(np.diff(people.distinct().offsets)).loss(protocol.unit.max_keys)
    if loss.people:
        say(f"For your eyes: {loss}")


@app.command()
def collect(
    reports: Annotated[list[Path], typer.Argument(metavar="REPORTS…", help="Files of reports.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The collection, a .dps file.")],
    spec: SpecFile,
    add_to: Annotated[Path | None, typer.Option("--add-to", help="Go on from this collection.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Collect reports; those of another spec, malformed or repeated are refused and counted."""
    from dpsketch import local

    protocol = local.read_spec(spec)
    collector = protocol.collector() if add_to is None else local.load(add_to)
    totals = {"accepted": 0, "repeated": 0, "other_spec": 0, "malformed": 0}
    for path in reports:
        received = collector.receive(local.read_reports(path, protocol))
        for name in totals:
            totals[name] += getattr(received, name)
    collector.save(output)
    if as_json:
        print_json({"output": str(output), **totals, "users": collector.users})
    else:
        words = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in totals.items())
        say(f"Reports: {words}. The collection {output} holds {collector.users:,}.")


@app.command()
def estimate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A collection (.dps).")],
    keys: Annotated[list[str] | None, typer.Argument(metavar="KEY…", help="Items to look up.")] = None,
    keys_from: Annotated[Path | None, typer.Option("--keys-from", help="A file with one item a line.")] = None,
    confidence: Confidence = 0.95,
    as_json: JsonOption = False,
) -> None:
    """Estimate the share of people who hold each item, with intervals."""
    from dpsketch import local
    from dpsketch.answers import answer

    collector = local.load(file)
    asked = list(keys or []) + (read_lines(keys_from) if keys_from is not None else [])
    print_estimates(answer(collector, asked, confidence, None), collector.guarantee, as_json=as_json)
