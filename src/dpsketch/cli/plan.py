"""The command that proposes a shape, or compares the kinds that answer one question: plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from dpsketch.cli.options import (
    FILE,
    WHOLE,
    argument,
    command,
    flag_of,
    json_option,
    neighbours_option,
    option,
    unit_from,
)
from dpsketch.cli.output import print_json, say, table
from dpsketch.errors import InvalidInput
from dpsketch.numbers import number_text, typed_number
from dpsketch.sketches.kinds import KINDS

if TYPE_CHECKING:
    from dpsketch.plan import Amount, Comparison, Guess, Proposal
    from dpsketch.privacy import Neighbours, Unit
    from dpsketch.sketches.table import Column

__all__ = ["plan"]

_ASSUMED_DELTA = 1e-6


def _planned(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Complete the name of a kind that can be planned."""
    return [kind.name for kind in KINDS.values() if kind.planned and kind.name.startswith(begun)]


@command()
@argument("kind", "[KIND]", "Kind of sketch to plan.", required=False, shell_complete=_planned)
@option("--records", type=float, required=True, help="Public guess of the number of records.")
@option("--question", help="Question to compare kinds for, instead of KIND: keys (which are there, and how often).")
@option("--epsilon", "-e", type=float, help="Privacy parameter ε of the release.")
@option("--delta", "-d", type=float, help="Privacy parameter δ of the release; 0 is pure privacy.")
@option("--rho", type=float, help="Privacy parameter ρ (zero-concentrated), instead of ε and δ.")
@option(
    "--keys", "--groups", type=WHOLE, default=10_000, help="Public guess of the number of distinct keys, or groups."
)
@option("--skew", type=float, default=1.0, help="Public guess of the skew: the i-th key has a share of i^-skew.")
@option("--users", type=float, help="Public guess of the number of users; the plan then protects users.")
@option("--target-error", type=float, help="Wanted error, in records. By default as small as fits.")
@option("--memory", type=WHOLE, help="Maximum number of bytes. By default 4 MiB, or what the keys take.")
@option("--max-keys", type=int, help="Maximum number of distinct keys per user; the plan then protects users.")
@option("--max-weight", type=float, default=1.0, help="Largest weight of a record.")
@neighbours_option
@option("--listed", is_flag=True, help="Statement that a public list of all keys will be given (histogram, table).")
@option("--threshold", type=float, help="Smallest count to be asked for (heavy).")
@option("--key-bits", type=int, help="Length of integer keys in bits (heavy).")
@option("--key-bytes", type=int, help="Length of text keys in bytes (heavy).")
@option("--p", type=float, help="Exponent (moment).")
@option("--dim", type=int, default=2, help="Number of coordinates (density).")
@option("--similarity", type=float, default=0.1, help="Public guess of the mean kernel value (density).")
@option("--bits", type=int, default=32, help="Size of the domain: values lie in [start, start + 2^bits) (ranges).")
@option("--start", type=int, default=0, help="Smallest value of the domain (ranges).")
@option("--quantiles", multiple=True, help="Only quantiles to answer, as in 0.5,0.9 (ranges), or amount:.5,.9 (table).")
@option("--count", is_flag=True, help="Number of records of each group (table).")
@option("--sum", multiple=True, metavar="COLUMN[=LOW:HIGH]", help="Sum of a column (table). May be repeated.")
@option("--mean", multiple=True, metavar="COLUMN[=LOW:HIGH]", help="Mean of a column (table). May be repeated.")
@option("--over", type=click.Choice(["records", "users"]), default="records", help="What means are over (table).")
@option("--bounds", type=FILE, help="Picture to draw error against --max-keys into, for --users (histogram).")
@option("--spread", type=float, default=1.0, help="Standard deviation of the log of users' numbers of keys (--bounds).")
@json_option
def plan(
    kind: str | None, records: float, question: str | None, epsilon: float | None, delta: float | None,
    rho: float | None, keys: int, skew: float, users: float | None, max_keys: int | None, max_weight: float,
    neighbours: Neighbours, quantiles: tuple[str, ...], count: bool, sum: tuple[str, ...], mean: tuple[str, ...],
    over: Literal["records", "users"], bounds: Path | None, spread: float, as_json: bool, **shape: Any,
) -> None:  # fmt: skip
    """Propose a sketch for a wanted error, and predict its cost. Nothing is read or spent.

    With --question all sketches that answer it are compared, and the best is proposed.
    """
    from dpsketch.cli.kinds import listed_shares
    from dpsketch.cli.table import columns_of
    from dpsketch.plan import Amount, Guess, compare, propose

    if (kind is None) == (question is None):
        raise click.UsageError("Say which kind to plan, or which --question to compare kinds for.")
    guess = Guess(records, keys, skew, users)
    if bounds is not None and users is not None:
        max_keys = 1  # all bounds are looked at
    if kind == "table":
        shape["columns"] = columns_of(
            over, count=count, users=users is not None or max_keys is not None, sum=sum, mean=mean, quantiles=quantiles
        )
    elif count or sum or mean or len(quantiles) > 1:
        raise InvalidInput("--count, --sum, --mean and more --quantiles are columns of a table: dpsketch plan table.")
    if users is not None and max_keys is None and kind != "table":
        max_keys = math.ceil(records / users)
        say(f"Assuming --max-keys {max_keys}: each user has so many records, and may have as many keys.")
    bound = "auto" if max_keys is None and users is not None else max_keys
    unit = unit_from(None if bound is None else "user", bound, max_weight, neighbours)
    if epsilon is not None and delta is None:
        # A plan spends nothing, so it may assume; the command that it proposes states the δ.
        delta = 0.0 if kind in KINDS and KINDS[kind].pure else _ASSUMED_DELTA
        say(f"Assuming --delta {typed_number(delta)}; say another, or 0 for pure privacy.")
    amount = Amount(unit, epsilon, delta, rho)
    if bounds is not None:
        if kind != "histogram":
            raise InvalidInput("--bounds is for a histogram: dpsketch plan histogram --bounds PICTURE --users ….")
        _draw_bounds(amount, guess, spread, bounds, as_json)
        return
    if question is not None:
        if shape.pop("target_error") is not None:
            raise InvalidInput("--question compares what each sketch can reach: leave --target-error out.")
        asked = {name: shape[name] for name in ("listed", "memory", "threshold", "key_bits", "key_bytes")}
        compared = compare(question, amount, guess, **asked)
        if as_json:
            print_json({**compared.to_json(), "command": _whole_command(compared.best, unit)})
        else:
            _print_comparison(compared, guess, unit)
        return
    assert kind is not None
    if kind != "table" and quantiles:
        shape["quantiles"] = listed_shares(quantiles[0])
    found = propose(kind, amount, guess, **shape)
    if as_json:
        print_json(found.to_json())
    elif kind == "table":
        _print_table(found, guess, unit, shape["columns"] or [])
    else:
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


def _command(found: Proposal, unit: Unit, columns: Sequence[Column] = ()) -> str:
    """Return the command that a proposal is, with the unit that it was planned for: another has another noise."""
    groups = found.kind == "table"
    parts = ["dpsketch table SOURCE… --by COLUMNS" if groups else f"dpsketch run {_name(found)} SOURCE…"]
    if unit.level == "user":
        parts.append("--user COLUMN" if unit.chosen else f"--user COLUMN --max-keys {unit.max_keys}")
    if unit.max_weight != 1:
        parts.append(f"--weight COLUMN --max-weight {typed_number(unit.max_weight)}")
    if unit.neighbours != "add_remove":
        parts.append(f"--neighbours {unit.neighbours}")
    parts += map(_column_option, columns)
    if any(column.over == "users" for column in columns):
        parts.append("--over users")
    for name, value in found.shape.items():
        parts.append(flag_of(name) + ("" if value is True else f" {value}"))
    amounts = (("epsilon", found.budget["epsilon"]), ("delta", found.budget["delta"]), ("rho", found.budget["rho"]))
    parts += [f"--{name} {typed_number(value)}" for name, value in amounts if value is not None]
    if found.needs_list:
        parts.append("--groups FILE" if groups else "--keys-from FILE")
    return " ".join([*parts, "-o out.dps"])


def _name(found: Proposal) -> str:
    return KINDS[found.kind].command or found.kind


def _column_option(column: Column) -> str:
    """Return a column of a table as an option of the command line."""
    if column.value is None:
        return f"--{column.kind}"
    shares = f":{','.join(f'{share:g}' for share in column.shares)}" if column.shares else ""
    bounds = "" if column.low is None else f"={typed_number(column.low)}:{typed_number(column.high or 0.0)}"
    return f"--{column.kind} {column.value}{shares}{bounds}"


def _whole_command(found: Proposal, unit: Unit) -> str:
    """Return the command with the key's column, for whoever has not chosen a kind yet."""
    return _command(found, unit).replace("SOURCE…", "SOURCE… --key COLUMN")


def _print_table(found: Proposal, guess: Guess, unit: Unit, columns: Sequence[Column]) -> None:
    figures, units = dict(found.also), "users" if unit.level == "user" else "records"
    print(f"Proposed: {_command(found, unit, columns)}")
    print(f"A typical group has {number_text(figures.pop('typical_size'))} {units}.")
    if "found" in figures:
        print(
            f"Groups are named from about {number_text(figures.pop('named_from'))} {units} on: about "
            f"{number_text(figures.pop('found'))} of {guess.keys:,}."
        )
    if (kept := figures.pop("max_keys", None)) is not None and unit.chosen:
        print(f"A user would count in about {number_text(kept)} groups, if the release chooses.")
    table(["column", "half of a 95% interval"], [[name, number_text(each)] for name, each in figures.items()])
    _print_effort(found, guess)


def _print_proposal(found: Proposal, guess: Guess, unit: Unit) -> None:
    print(f"Proposed: {_command(found, unit)}")
    print(f"Predicted error: {number_text(found.error)} ({found.error_of}).")
    for name, value in found.also.items():
        print(f"  {name.replace('_', ' ')}: {number_text(value)}")
    _print_effort(found, guess)


def _print_effort(found: Proposal, guess: Guess) -> None:
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
