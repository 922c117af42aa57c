"""One function that plans every kind."""

from __future__ import annotations

import math

from dpsketch.errors import InvalidInput
from dpsketch.numbers import real_number, whole_number
from dpsketch.plan.sizes import plan_density, plan_distinct, plan_moment, plan_sparse
from dpsketch.plan.tables import plan_counts, plan_heavy, plan_ranges
from dpsketch.plan.values import Amount, Guess, Proposal

__all__ = ["PLANNED", "propose"]

PLANNED = ("counts", "heavy", "sparse", "moment", "density", "distinct", "ranges")
DEFAULT_MEMORY = 1 << 22


def propose(
    kind: str,
    amount: Amount,
    guess: Guess,
    *,
    target_error: float | None = None,
    memory: int = DEFAULT_MEMORY,
    threshold: float | None = None,
    key_bits: int | None = None,
    key_bytes: int | None = None,
    p: float | None = None,
    dim: int = 2,
    similarity: float = 0.1,
    bits: int = 32,
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
    memory : int
        The most bytes that the sketch may take while it counts.
    threshold, key_bits, key_bytes : optional
        heavy: the threshold that will be asked, and the length of keys (64 bits unless given).
    p : float, optional
        moment: the exponent.
    dim, similarity
        density: coordinates, and a guess at the mean similarity of the records to a query point.
    bits : int
        ranges: values lie in [0, 2^bits).

    Accuracy
    --------
    For counts the proposal is rehearsed: tables of the guessed data, with noise of the very law, are asked. If the
    guess is right, the error measured afterwards is within 20% of it. Densities and ranges are given a bound instead.

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
    memory = whole_number("memory", memory)
    if memory < 4096:
        raise InvalidInput("memory must be at least 4096 bytes.")
    threshold = None if threshold is None else real_number("threshold", threshold)
    key_bits = None if key_bits is None else whole_number("key_bits", key_bits)
    key_bytes = None if key_bytes is None else whole_number("key_bytes", key_bytes)
    p = None if p is None else real_number("p", p)
    dim, bits = whole_number("dim", dim), whole_number("bits", bits)
    similarity = real_number("similarity", similarity)
    match kind:
        case "counts":
            return plan_counts(amount, guess, target_error=target_error, memory=memory)
        case "heavy":
            if key_bits is None and key_bytes is None:
                key_bits = 64
            return plan_heavy(
                amount,
                guess,
                target_error=target_error,
                memory=memory,
                threshold=threshold,
                key_bits=key_bits,
                key_bytes=key_bytes,
            )
        case "sparse":
            return plan_sparse(amount, guess, target_error=target_error, memory=memory)
        case "moment":
            if p is None:
                raise InvalidInput("say which moment: p=0.5, say.")
            return plan_moment(amount, guess, target_error=target_error, memory=memory, p=p)
        case "density":
            return plan_density(amount, guess, target_error=target_error, memory=memory, dim=dim, similarity=similarity)
        case "distinct":
            return plan_distinct(amount, guess, target_error=target_error, memory=memory)
        case "ranges":
            return plan_ranges(amount, guess, target_error=target_error, memory=memory, bits=bits)
        case _:
            raise InvalidInput(f"there are plans for {', '.join(PLANNED)}, not for {kind!r}.")
