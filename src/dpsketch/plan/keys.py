"""The plan of a histogram: nothing to choose, but how many names it finds, and how accurate their counts are."""

from __future__ import annotations

from dpsketch.errors import InvalidInput
from dpsketch.plan.duration import seconds_for
from dpsketch.plan.values import Amount, Guess, Proposal, out_of_reach
from dpsketch.sketches.histogram import Histogram
from dpsketch.sketches.histogram.predict import Holdings, predict
from dpsketch.sketches.histogram.spec import HistogramSpec

__all__ = ["plan_histogram"]


def plan_histogram(
    amount: Amount, guess: Guess, *, target_error: float | None, limit: int | None, listed: bool
) -> Proposal:
    """Say how many names a histogram would find, and how accurate their counts would be; it has no size to choose.

    Without δ > 0 it finds no names, and is planned for a public list.
    """
    spec = HistogramSpec(amount.unit)
    needs_list = listed or not amount.delta
    mechanism = spec.mechanism(**amount.budget, keys=() if needs_list else None)
    holdings = Holdings.of(guess.counts, amount.unit, guess.users)
    if limit is not None and holdings.memory > limit:
        raise InvalidInput(
            f"a histogram of these keys takes about {holdings.memory:,} bytes, more than {limit:,}. Allow more "
            "memory, or plan a sketch: counts, heavy."
        )
    predicted = predict(mechanism, holdings)
    error = spec.grid * predicted.error
    if target_error is not None and error > target_error:
        raise out_of_reach(target_error, error, "whatever the size")
    also = {"present": predicted.present}
    if not needs_list:
        also |= {"found": predicted.found}
    if mechanism.cutoff is not None:
        also |= {"threshold": spec.grid * mechanism.cutoff}
    notes = [f"Mechanism: {mechanism.words}."]
    if needs_list and not listed:
        notes.append("Names that are on no public list need delta > 0; this plan is for a list, --keys-from.")
    if mechanism.counted < holdings.held:
        notes.append(f"Of a user at most {mechanism.counted} keys count, of about {holdings.held:.3g} that each has.")
    return Proposal(
        kind="histogram",
        shape={},
        budget=amount.budget,
        error=error,
        error_of="a listed key's count, root mean square",
        memory=holdings.memory,
        seconds=seconds_for(Histogram.from_spec(spec), guess.records),
        also=also,
        notes=tuple(notes),
        needs_list=needs_list,
    )
