"""The local model: local report, collect, estimate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dpsketch.cli.exits import OutputExists
from dpsketch.cli.options import FILE, Group, SourceFormat, argument, json_option, one_of, option, read_lines
from dpsketch.cli.output import print_estimates, print_json, progress_bar, say
from dpsketch.cli.query import confidence_option, keys_from_option
from dpsketch.errors import InvalidInput

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.sources import Format

__all__ = ["local"]

local = Group("local", help="Collect reports that people randomise themselves (the local model).")
_spec = option("--spec", type=FILE, required=True, help="Protocol: a JSON file that everyone shares.")


@local.command()
@argument("source", "SOURCE…", "Records of people and their items.", nargs=-1, required=True)
@option("--output", "-o", type=FILE, required=True, help="File of reports: JSON lines (.jsonl) or compact bytes.")
@_spec
@option("--user", required=True, help="Column that says whose item it is.")
@option("--key", required=True, help="Column that holds the item.")
@option("--epsilon", "-e", type=float, help="Privacy parameter ε of a report; it begins a new spec.")
@option("--max-items", type=int, help="Maximum number of items per person, for a new spec.")
@option("--key-type", type=one_of(Literal["text", "int"]), help="Type of the items; those of CSV are text unless int.")
@option("--format", "stdin_format", type=one_of(SourceFormat), default="csv", help="Format of standard input (-).")
def report(
    source: tuple[str, ...], output: Path, spec: Path, user: str, key: str, epsilon: float | None,
    max_items: int | None, key_type: KeyType | None, stdin_format: Format,
) -> None:  # fmt: skip
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
        protocol = local.SubsetHashing(epsilon=epsilon, max_items=max_items, key_type=key_type)
        local.write_spec(spec, protocol)
    columns = Columns(key=key, user=user, key_type=protocol.key_type)
    with progress_bar("reading") as progress:
        batches = list(open_source(list(source), columns, stdin_format=stdin_format, progress=progress))
    users, keys = (pa.chunked_array([getattr(b, name) for b in batches if b.rows]) for name in ("user", "key"))
    sets = local.group_by_person(users, keys)
    written = local.write_reports(output, protocol, protocol.report(sets))
    _report_cut(protocol, sets)
    say(f"Wrote {written:,} reports to {output}. Guarantee of each: {protocol.guarantee}")


def _report_cut(protocol: Any, sets: Any) -> None:
    """Tell the data holder, and nobody else, how much the cap on a person's items cut."""
    import numpy as np

    from dpsketch import local
    from dpsketch.local.protocol import read_people

    if protocol.unit.level == "record" or not len(people := read_people(sets, protocol.key_type)):
        return
    loss = local.SizeDistribution.from_sizes(np.diff(people.distinct().offsets)).loss(protocol.unit.max_keys)
    if loss.people:
        say(f"For your eyes: {loss}")


@local.command()
@argument("reports", "REPORTS…", "Files of reports.", nargs=-1, required=True, type=FILE)
@option("--output", "-o", type=FILE, required=True, help="Collection to write, a .dps file.")
@_spec
@option("--add-to", type=FILE, help="Collection to go on from.")
@json_option
def collect(reports: tuple[Path, ...], output: Path, spec: Path, add_to: Path | None, as_json: bool) -> None:
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


@local.command()
@argument("file", "FILE", "Collection (.dps).", type=FILE)
@argument("keys", "KEY…", "Items to look up.", nargs=-1)
@keys_from_option
@confidence_option
@json_option
def estimate(file: Path, keys: tuple[str, ...], keys_from: Path | None, confidence: float, as_json: bool) -> None:
    """Estimate the share of people who hold each item, with intervals."""
    from dpsketch import local
    from dpsketch.answers import answer

    collector = local.load(file)
    asked = list(keys) + (read_lines(keys_from) if keys_from is not None else [])
    print_estimates(answer(collector, asked, confidence, None), collector.guarantee, as_json=as_json)
