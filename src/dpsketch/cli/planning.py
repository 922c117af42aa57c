"""The command that proposes a shape: plan."""

from __future__ import annotations

from typing import Annotated

import typer

from dpsketch.cli.options import JsonOption, RelationName, kind_argument, unit_from
from dpsketch.cli.output import print_json, say
from dpsketch.numbers import number_text
from dpsketch.sketches.kinds import KINDS

__all__ = ["plan"]

_ASSUMED_DELTA = 1e-6


def plan(
    kind: Annotated[str, kind_argument(lambda kind: kind.plan_path is not None, "Which sketch")],
    records: Annotated[float, typer.Option("--records", help="A public guess: how many records.")],
    epsilon: Annotated[float | None, typer.Option("--epsilon", "-e", help="Privacy: ε of the release.")] = None,
    delta: Annotated[float | None, typer.Option("--delta", "-d", help="Privacy: δ of the release; 0 is pure.")] = None,
    rho: Annotated[float | None, typer.Option("--rho", help="Privacy: ρ (zero-concentrated) instead.")] = None,
    keys: Annotated[int, typer.Option("--keys", help="A public guess: how many distinct keys.")] = 10_000,
    skew: Annotated[float, typer.Option("--skew", help="A public guess: the i-th key has a share of i^-skew.")] = 1.0,
    target_error: Annotated[
        float | None, typer.Option("--target-error", help="The wanted error, in records. Default: as small as fits.")
    ] = None,
    memory: Annotated[
        int | None, typer.Option("--memory", help="The most bytes that the sketch may take. Default: about 4 million.")
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
    bits: Annotated[int, typer.Option("--bits", help="ranges: values lie in [0, 2^bits).")] = 32,
    quantiles: Annotated[
        str | None, typer.Option("--quantiles", help="ranges: all that will be asked, as in 0.5,0.9.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Propose a shape for a wanted error, with predicted error, memory and time. Reads and spends nothing."""
    from dpsketch.plan import Amount, Guess, propose
    from dpsketch.sketches.ranges.command import listed_shares

    unit = unit_from(None if max_keys is None else "user", max_keys, max_weight, neighbours)
    if epsilon is not None and delta is None:
        # A plan spends nothing, so it may assume; the command that it proposes states the δ.
        delta = 0.0 if KINDS[kind].pure else _ASSUMED_DELTA
        say(f"Assuming --delta {delta:g}; say another, or 0 for pure privacy.")
    found = propose(
        kind,
        Amount(unit, epsilon, delta, rho),
        Guess(records, keys, skew),
        target_error=target_error,
        memory=memory,
        threshold=threshold,
        key_bits=key_bits,
        key_bytes=key_bytes,
        p=p,
        dim=dim,
        similarity=similarity,
        bits=bits,
        quantiles=None if quantiles is None else listed_shares(quantiles),
    )
    if as_json:
        print_json(found.to_json())
        return
    shape = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in found.shape.items())
    amounts = (("epsilon", epsilon), ("delta", delta), ("rho", rho))
    budget = " ".join(f"--{name} {value:g}" for name, value in amounts if value is not None)
    user = "" if max_keys is None else f" --user COLUMN --max-keys {max_keys}"
    print(f"Proposed: dpsketch run {found.kind} SOURCE…{user} {shape} {budget} -o out.dps")
    print(f"Predicted error: {number_text(found.error)} ({found.error_of}).")
    for name, value in found.also.items():
        print(f"  {name.replace('_', ' ')}: {number_text(value)}")
    print(f"Memory: {found.memory:,} bytes. Time: about {found.seconds:.2g} s to count {records:,.0f} records.")
    for note in found.notes:
        print(f"Note: {note}")
