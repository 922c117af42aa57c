"""Plans of histograms, exact and in bounded memory: how many names they find, and how accurate their counts are."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erfc

from dpsketch.arrays import Floats
from dpsketch.errors import InvalidInput
from dpsketch.laws.votes import Votes
from dpsketch.noise import DiscreteLaplace
from dpsketch.plan.duration import seconds_for
from dpsketch.plan.values import Amount, Guess, Proposal, out_of_reach
from dpsketch.privacy import Budget
from dpsketch.sketches.histogram import Histogram, VoteHistogram
from dpsketch.sketches.histogram.intervals import log_reaching
from dpsketch.sketches.histogram.predict import Holdings, kept, predict
from dpsketch.sketches.histogram.spec import HistogramSpec
from dpsketch.sketches.histogram.votes.spec import VoteHistogramSpec

__all__ = ["plan_histogram", "plan_votes"]

# Buckets that are tried.
_SIZES = [2**i for i in range(6, 21)]
# What a larger table finds more than this share is not worth its memory.
_ENOUGH = 0.97
# Data of which a prediction is made: drawn so often.
_DRAWS = 2


def plan_histogram(
    amount: Amount, guess: Guess, *, target_error: float | None, limit: int | None, listed: bool
) -> Proposal:
    """Say how many names a histogram would find, and how accurate their counts would be; it has no size to choose.

    Without δ > 0 it finds no names, and is planned for a public list.
    """
    spec = HistogramSpec(amount.unit)
    needs_list = listed or not amount.delta
    law = spec.law(**amount.budget, keys=() if needs_list else None)
    holdings = Holdings.of(guess.counts, amount.unit, guess.users)
    if limit is not None and holdings.memory > limit:
        raise InvalidInput(
            f"a histogram of these keys takes about {holdings.memory:,} bytes, more than {limit:,}. Allow more "
            "memory, or plan a sketch: counts, heavy."
        )
    predicted = predict(law, holdings)
    error = spec.grid * predicted.error
    if target_error is not None and error > target_error:
        raise out_of_reach(target_error, error, "whatever the size")
    also = {"present": predicted.present}
    if not needs_list:
        also |= {"found": predicted.found}
    if law.cutoff is not None:
        also |= {"threshold": spec.grid * law.cutoff}
    notes = [f"Mechanism: {law.words}."]
    if needs_list and not listed:
        notes.append("Names that are on no public list need delta > 0; this plan is for a list, --keys-from.")
    if law.bound() < holdings.held:
        notes.append(f"Of a user at most {law.bound()} keys count, of about {holdings.held:.3g} that each has.")
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


def plan_votes(amount: Amount, guess: Guess, *, target_error: float | None, memory: int, listed: bool) -> Proposal:
    """Propose the least number of buckets that finds almost as many names as all of the memory would."""
    if listed:
        raise InvalidInput("buckets answer for the keys that they name, and not for those of a list.")
    holdings = Holdings.of(guess.counts, amount.unit, guess.users)
    counts = holdings.counts
    if holdings.chances is not None:
        counts = counts * kept(holdings.chances, amount.unit.max_keys)
    sizes = [size for size in _SIZES if VoteHistogramSpec(size, amount.unit).memory <= memory] or [_SIZES[0]]
    (law,) = VoteHistogramSpec(sizes[-1], amount.unit).laws(Budget(**amount.budget))
    found = {size: _predicted(counts, size, law) for size in sizes}
    most = max(names for names, _ in found.values())
    size = next(size for size, (names, _) in found.items() if names >= _ENOUGH * most)
    names, error = found[size]
    if target_error is not None and error > target_error:
        raise out_of_reach(target_error, error, f"with {size} buckets")
    spec = VoteHistogramSpec(size, amount.unit)
    return Proposal(
        kind="histogram-votes",
        shape={"max_counters": size},
        budget=amount.budget,
        error=error,
        error_of="a listed key's count, root mean square",
        memory=spec.memory,
        seconds=seconds_for(VoteHistogram.from_spec(spec), guess.records),
        also={"found": names, "threshold": law.cutoff},
        notes=(f"Mechanism: {law.words}.",),
    )


def _predicted(counts: Floats, buckets: int, law: Votes) -> tuple[float, float]:
    """Return how many keys are listed, and the error of their counts.

    Keys are thrown into buckets. In each the most frequent key is left with what it has more than all others: their
    records are paired off with its own, if it holds the bucket most of the time. Then u is its count, and c is lower
    by the others' records. Where it holds less than half of them, it holds the bucket for less of the time, and c is
    about the distance of a random walk.
    """
    rng = np.random.default_rng(1)
    listed, squares = 0.0, 0.0
    for _ in range(_DRAWS):
        drawn = rng.poisson(counts).astype(np.float64)
        places = rng.integers(buckets, size=len(drawn))
        loads = np.bincount(places, weights=drawn, minlength=buckets)
        tops = np.zeros(buckets)
        np.maximum.at(tops, places, drawn)
        held = loads > 0
        loads, tops = loads[held], tops[held]
        lead = 2 * tops - loads
        # E max(0, lead + √load·N) of a walk that ends about the lead and is reflected at 0.
        spread = np.sqrt(np.maximum(loads - tops, 1e-9))
        walk = np.exp(-((lead / spread) ** 2) / 2) / math.sqrt(2 * math.pi)
        votes = lead * (1 - erfc(lead / spread / math.sqrt(2)) / 2) + spread * walk
        chance = _passing(votes, law)
        over = (loads + votes) / 2 - tops if law.has_loads else votes - tops
        listed += float(chance.sum())
        squares += float((chance * over**2).sum())
    variance = law.noise.variance
    return listed / _DRAWS, math.sqrt(variance + squares / max(listed, 1e-9))


def _passing(votes: Floats, law: Votes) -> Floats:
    """Return how likely buckets with such majorities are listed."""
    noise = law.noise
    reach = math.ceil(14 * math.sqrt(noise.variance)) + 1
    step = max(1, reach // 4096)
    places = step * np.arange(-(reach // step), reach // step + 1)
    reaching = np.exp(log_reaching(noise, places))
    if law.has_loads:
        assert isinstance(noise, DiscreteLaplace)
        # P(Z − Z' ≥ z) is the sum over Z' of P(Z ≥ z + Z').
        masses, size = -np.diff(reaching, append=0.0), len(reaching)
        wide = np.concatenate([np.ones(size), reaching, np.zeros(size)])
        reaching = np.convolve(wide, masses[::-1] / masses.sum(), mode="same")[size : 2 * size]
    chances: Floats = np.interp(law.cutoff - np.round(votes), places, reaching, left=1.0, right=0.0)
    return np.where(votes >= 0.5, chances, 0.0)
