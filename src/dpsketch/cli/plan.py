"""The command that proposes a shape, or compares the kinds that answer one question: plan."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsketch.cli.options import JsonOption, RelationName, kind_argument, unit_from, whole
from dpsketch.cli.output import print_json, say, table
from dpsketch.errors import InvalidInput
from dpsketch.numbers import number_text, typed_number
from dpsketch.sketches.kinds import KINDS

if TYPE_CHECKING:
    from dpsketch.plan import Amount, Comparison, Guess, Proposal
    from dpsketch.privacy import Unit

__all__ = ["plan"]

_ASSUMED_DELTA = 1e-6


def plan(
    records: Annotated[float, typer.Option("--records", help="A public guess: how many records.")],
    kind: Annotated[str | None, kind_argument(lambda kind: kind.planned, "Which sketch")] = None,
    question: Annotated[
        str | None,
        typer.Option("--question", help="Instead of a sketch: compare all that answer this. keys: which, how often."),
    ] = None,
    epsilon: Annotated[float | None, typer.Option("--epsilon", "-e", help="Privacy: ε of the release.")] = None,
    delta: Annotated[float | None, typer.Option("--delta", "-d", help="Privacy: δ of the release; 0 is pure.")] = None,
    rho: Annotated[float | None, typer.Option("--rho", help="Privacy: ρ (zero-concentrated) instead.")] = None,
    keys: Annotated[
        int, typer.Option("--keys", parser=whole, metavar="INTEGER", help="A public guess: how many distinct keys.")
    ] = 10_000,
    skew: Annotated[float, typer.Option("--skew", help="A public guess: the i-th key has a share of i^-skew.")] = 1.0,
    users: Annotated[
        float | None, typer.Option("--users", help="A public guess: how many users the records are of. Protects users.")
    ] = None,
    listed: Annotated[
        bool, typer.Option("--listed", help="histogram, --question keys: a public list of all keys will be given.")
    ] = False,
    target_error: Annotated[
        float | None, typer.Option("--target-error", help="The wanted error, in records. Default: as small as fits.")
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            "--memory",
            parser=whole,
            metavar="INTEGER",
            help="The most bytes it may take. Default: 4 MiB, or its keys'.",
        ),
    ] = None,
    max_keys: Annotated[int | None, typer.Option("--max-keys", help="Protect users, of so many keys each.")] = None,
    max_weight: Annotated[float, typer.Option("--max-weight", help="Largest weight of a record.")] = 1,
    neighbours: Annotated[RelationName, typer.Option("--neighbours", help="What one unit's presence means.")] = (
        RelationName.ADD_REMOVE
    ),
    threshold: Annotated[float | None, typer.Option("--threshold", help="heavy: what will be asked for.")] = None,
    key_bits: Annotated[int | None, typer.Option("--key-bits", help="heavy: integer keys below 2^bits.")] = None,
    key_bytes: Annotated[int | None, typer.Option("--key-bytes", help="heavy: text keys of so many bytes.")] = None,
    p: Annotated[float | None, typer.Option("--p", help="moment: the exponent.")] = None,
    dim: Annotated[int, typer.Option("--dim", help="density: the number of coordinates.")] = 2,
    similarity: Annotated[float, typer.Option("--similarity", help="density: mean kernel value, a guess.")] = 0.1,
    bits: Annotated[int, typer.Option("--bits", help="ranges: values lie in [start, start + 2^bits).")] = 32,
    start: Annotated[int, typer.Option("--start", help="ranges: the smallest value.")] = 0,
    quantiles: Annotated[
        str | None, typer.Option("--quantiles", help="ranges: all that will be asked, as in 0.5,0.9.")
    ] = None,
    bounds: Annotated[
        Path | None,
        typer.Option("--bounds", help="histogram: draw error against --max-keys, for --users, into this picture."),
    ] = None,
    spread: Annotated[
        float, typer.Option("--spread", help="--bounds: standard deviation of the log of users' numbers of keys.")
    ] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Propose a shape for a wanted error, with predicted error, memory and time. Reads and spends nothing.

    With --question all sketches that answer it are compared, and the best is proposed.
    """
    from dpsketch.plan import Amount, Guess, compare, propose
    from dpsketch.sketches.ranges.command import listed_shares

    if (kind is None) == (question is None):
        raise typer.BadParameter("say which sketch to plan, or which --question to compare sketches for.")
    guess = Guess(records, keys, skew, users)
    if bounds is not None and users is not None:
        max_keys = 1  # all bounds are looked at
    if users is not None and max_keys is None:
        max_keys = math.ceil(records / users)
        say(f"Assuming --max-keys {max_keys}: each user has so many records, and may have as many keys.")
    unit = unit_from(None if max_keys is None else "user", max_keys, max_weight, neighbours)
    if epsilon is not None and delta is None:
        # A plan spends nothing, so it may assume; the command that it proposes states the δ.
        delta = 0.0 if kind is not None and KINDS[kind].pure else _ASSUMED_DELTA
        say(f"Assuming --delta {typed_number(delta)}; say another, or 0 for pure privacy.")
    amount = Amount(unit, epsilon, delta, rho)
    if bounds is not None:
        if kind != "histogram":
            raise InvalidInput("--bounds is for a histogram: dpsketch plan histogram --bounds PICTURE --users ….")
        _draw_bounds(amount, guess, spread, bounds, as_json)
        return
    if question is not None:
        if target_error is not None:
            raise InvalidInput("--question compares what each sketch can reach: leave --target-error out.")
        compared = compare(
            question, amount, guess, listed=listed, memory=memory, threshold=threshold, key_bits=key_bits,
            key_bytes=key_bytes,
        )  # fmt: skip
        if as_json:
            print_json({**compared.to_json(), "command": _whole_command(compared.best, unit)})
        else:
            _print_comparison(compared, guess, unit)
        return
    assert kind is not None
    found = propose(
        kind,
        amount,
        guess,
        target_error=target_error,
        memory=memory,
        threshold=threshold,
        key_bits=key_bits,
        key_bytes=key_bytes,
        p=p,
        dim=dim,
        similarity=similarity,
        bits=bits,
        start=start,
        listed=listed,
        quantiles=None if quantiles is None else listed_shares(quantiles),
    )
    if as_json:
        print_json(found.to_json())
        return
    _print_proposal(found, guess, unit)


def _draw_bounds(amount: Amount, guess: Guess, spread: float, path: Path, as_json: bool) -> None:
    from dpsketch import plots
    from dpsketch.plan import error_by_bound

    plots.check_ending(path)
    curve = error_by_bound(amount, guess, spread=spread)
    plots.save(curve.plot(), path)
    if as_json:
        print_json(curve.to_json())
        return
    table(["max_keys", "noise", "cut", "error of a count"], curve.rows)
    print(f"Least error at --max-keys {curve.best}, for such users; --max-keys auto needs no guess. Drawn in {path}.")


def _command(found: Proposal, unit: Unit) -> str:
    """Return the command that a proposal is, with the unit that it was planned for: another has another noise."""
    parts = ["dpsketch run", KINDS[found.kind].command or found.kind, "SOURCE…"]
    if unit.level == "user":
        parts.append(f"--user COLUMN --max-keys {unit.max_keys}")
    if unit.max_weight != 1:
        parts.append(f"--weight COLUMN --max-weight {typed_number(unit.max_weight)}")
    if unit.neighbours != RelationName.ADD_REMOVE.value:
        parts.append(f"--neighbours {unit.neighbours}")
    for name, value in found.shape.items():
        parts.append(f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}"))
    amounts = (("epsilon", found.budget["epsilon"]), ("delta", found.budget["delta"]), ("rho", found.budget["rho"]))
    parts += [f"--{name} {typed_number(value)}" for name, value in amounts if value is not None]
    if found.needs_list:
        parts.append("--keys-from FILE")
    return " ".join([*parts, "-o out.dps"])


def _whole_command(found: Proposal, unit: Unit) -> str:
    """Return the command with the key's column, for whoever has not chosen a kind yet."""
    return _command(found, unit).replace("SOURCE…", "SOURCE… --key COLUMN")


def _print_proposal(found: Proposal, guess: Guess, unit: Unit) -> None:
    print(f"Proposed: {_command(found, unit)}")
    print(f"Predicted error: {number_text(found.error)} ({found.error_of}).")
    for name, value in found.also.items():
        print(f"  {name.replace('_', ' ')}: {number_text(value)}")
    print(f"Memory: {found.memory:,} bytes. Time: about {found.seconds:.2g} s to count {guess.records:,.0f} records.")
    for note in found.notes:
        print(f"Note: {note}")


def _print_comparison(compared: Comparison, guess: Guess, unit: Unit) -> None:
    def names(one: Proposal) -> str:
        return "from your list" if "found" not in one.also else number_text(one.also["found"])

    table(
        ["sketch", "names found", "error of a count", "bytes"],
        [[one.kind, names(one), number_text(one.error), f"{one.memory:,}"] for one in compared.proposals],
    )
    for kind, reason in compared.refused.items():
        print(f"Not {kind}: {reason}")
    print(f"Use {compared.best.kind}: {compared.why}")
    for one in compared.proposals[1:]:
        print(f"  {one.kind}, where {KINDS[one.kind].suits}.")
    print(f"Proposed: {_whole_command(compared.best, unit)}")
    for note in compared.best.notes:
        print(f"Note: {note}")
