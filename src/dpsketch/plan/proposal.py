"""One function that plans every kind, by the planner that its row names."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

from dpsketch.errors import InvalidInput
from dpsketch.numbers import real_number, whole_number
from dpsketch.plan.values import Amount, Guess, Proposal
from dpsketch.sketches.kinds import KINDS

__all__ = ["PLANNED", "propose"]

DEFAULT_MEMORY = 1 << 22


def propose(
    kind: str,
    amount: Amount,
    guess: Guess,
    *,
    target_error: float | None = None,
    memory: int | None = None,
    threshold: float | None = None,
    key_bits: int | None = None,
    key_bytes: int | None = None,
    p: float | None = None,
    dim: int = 2,
    similarity: float = 0.1,
    bits: int = 32,
    start: int = 0,
    listed: bool = False,
    quantiles: Sequence[Any] | None = None,
) -> Proposal:
    """Propose the smallest shape that reaches a wanted error, from a guess at the data. Nothing is read or spent.

    Parameters
    ----------
    kind : str
        One of :data:`PLANNED`.
    amount : Amount
        Budget and unit of the release.
    guess : Guess
        How the data may look.
    target_error : float, optional
        The wanted error, in records. None: nearly the least that the memory allows.
    memory : int, optional
        The most bytes that the sketch may take while it counts. By default 4 MiB for what has a size to choose; a
        histogram takes what its keys take, and named quantiles what they need.
    threshold, key_bits, key_bytes : optional
        heavy: the threshold that will be asked, and the length of keys (64 bits unless given).
    p : float, optional
        moment: the exponent.
    dim, similarity
        density: coordinates, and a guess at the mean similarity of the records to a query point.
    bits, start : int
        ranges: values lie in [start, start + 2^bits).
    listed : bool
        histogram: whether a public list of all keys will be given.
    quantiles : sequence of numbers, optional
        ranges: all that will be asked, if it is a few quantiles. The proposal names them where that does better than a
        tree, which answers any, and says so.

    Accuracy
    --------
    For counts the proposal is rehearsed: tables of the guessed data, with noise of the very law, are asked. If the
    guess is right, the error measured afterwards is within 20% of it, and so are the names that a histogram finds.
    Densities and ranges are given a bound instead.

    Examples
    --------
    >>> from dpsketch.privacy import per_record
    >>> found = propose("distinct", Amount(per_record(), 1.0, 1e-6), Guess(1e6, 50_000, 1.0), target_error=1_000)
    >>> found.shape, round(found.error)
    ({'buckets': 2048}, 733)
    """
    target_error = None if target_error is None else real_number("target_error", target_error)
    if target_error is not None and not (math.isfinite(target_error) and target_error > 0):
        raise InvalidInput("target_error must be a positive number.")
    limit = None if memory is None else whole_number("memory", memory)
    if limit is not None and limit < 4096:
        raise InvalidInput("memory must be at least 4096 bytes.")
    threshold = None if threshold is None else real_number("threshold", threshold)
    key_bits = None if key_bits is None else whole_number("key_bits", key_bits)
    key_bytes = None if key_bytes is None else whole_number("key_bytes", key_bytes)
    p = None if p is None else real_number("p", p)
    dim, bits = whole_number("dim", dim), whole_number("bits", bits)
    similarity = real_number("similarity", similarity)
    row = KINDS.get(kind)
    if row is None or kind not in planned():
        raise InvalidInput(f"there are plans for {', '.join(planned())}, not for {kind!r}.")
    if row.plan is None:
        spec = row.spec(unit=amount.unit)
        error = spec.preview(**amount.budget).predicted_error
        return Proposal(kind, {}, amount.budget, error, "an answer", spec.memory, 0.0)
    own = {
        "threshold": threshold, "key_bits": key_bits, "key_bytes": key_bytes, "p": p, "dim": dim,
        "similarity": similarity, "bits": bits, "start": whole_number("start", start), "listed": listed,
        "quantiles": quantiles, "limit": limit,
        "memory": DEFAULT_MEMORY if limit is None else limit,
    }  # fmt: skip
    taken = inspect.signature(row.plan).parameters
    chosen = {name: value for name, value in own.items() if name in taken}
    proposal: Proposal = row.plan(amount, guess, target_error=target_error, **chosen)
    return proposal


def planned() -> tuple[str, ...]:
    """Return the names of the kinds that can be planned."""
    return tuple(kind.name for kind in KINDS.values() if kind.planned)


PLANNED = planned()
