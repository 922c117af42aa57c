"""Plans of histograms, exact and in bounded memory: how many names they find, and how accurate their counts are.

Beside them, what a bound on a user's keys is worth for a stated law of users: noise, what is cut, and both together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import erfc, ndtri

from dpsketch import plots
from dpsketch.arrays import Floats
from dpsketch.errors import InvalidInput
from dpsketch.laws.votes import Votes
from dpsketch.noise import DiscreteLaplace
from dpsketch.numbers import number_text, real_number
from dpsketch.plan.proposal import Amount, Guess, Proposal, Shape, proposed, require_reach
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.histogram import Histogram, VoteHistogram
from dpsketch.sketches.histogram.intervals import log_reaching
from dpsketch.sketches.histogram.predict import Holdings, kept, predict
from dpsketch.sketches.histogram.spec import HistogramSpec
from dpsketch.sketches.histogram.votes import VoteHistogramSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["BoundCurve", "error_by_bound", "plan_histogram", "plan_votes"]

_BOUNDS = sorted({round(2 ** (i / 2)) for i in range(25)})
# Users that stand for all.
_PEOPLE = 4000


@dataclass(frozen=True, slots=True, eq=False)
class BoundCurve:
    """The predicted error of a count against the bound on a user's keys.

    Attributes
    ----------
    bounds : list of int
        The bounds.
    noise, cut, error : numpy.ndarray
        What noise adds, what the bound cuts, and both together: root mean squares over all keys.
    spread : float
        The law of users: the standard deviation of the logarithm of their numbers of keys.
    """

    bounds: list[int]
    noise: Floats
    cut: Floats
    error: Floats
    spread: float

    @property
    def best(self) -> int:
        """The bound with the least error."""
        return self.bounds[int(self.error.argmin())]

    def plot(self) -> Figure:
        """Draw the three against the bound."""
        figure = plots.new_figure()
        axes = figure.subplots()
        axes.plot(self.bounds, self.noise, color="black", linestyle="--", label="noise")
        axes.plot(self.bounds, self.cut, color="black", linestyle=":", label="cut by the bound")
        axes.plot(self.bounds, self.error, color="#1f4e79", linewidth=2, label="together")
        axes.axvline(self.best, color="#9db8d2", linewidth=6, zorder=0, label=f"least at {self.best}")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_ylim(bottom=float(self.error.min()) / 4)
        axes.set_xlabel("max_keys: so many keys of a user count")
        axes.set_ylabel("error of a count, root mean square")
        axes.legend(frameon=False)
        axes.set_title(f"predicted, for numbers of keys with a spread of {self.spread:g}", fontsize=9, loc="left")
        return figure

    @property
    def rows(self) -> list[list[str]]:
        """The curve as rows of a table."""
        return [
            [str(bound), *(number_text(float(each)) for each in values)]
            for bound, *values in zip(self.bounds, self.noise, self.cut, self.error, strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the curve as JSON-ready values."""
        arrays = {name: getattr(self, name).tolist() for name in ("noise", "cut", "error")}
        return {"bounds": self.bounds, **arrays, "best": self.best, "spread": self.spread}


def error_by_bound(amount: Amount, guess: Guess, *, spread: float = 1.0) -> BoundCurve:
    """Predict the error of a histogram's counts for each bound on a user's keys. Nothing is read or spent.

    Parameters
    ----------
    amount : Amount
        Budget and unit; the unit's own bound is not used.
    guess : Guess
        How the data may look: ``users`` have ``records`` different keys in all.
    spread : float
        How unlike users are: their numbers of keys follow a lognormal law, and this is the standard deviation of its
        logarithm. 0: all have as many.

    Accuracy
    --------
    All keys are taken to be asked for, as a public list, and a user's keys not to depend on how many it has. Then a
    bound of m that cuts B pairs in all takes from each key in proportion to its share p, and the mean square of it
    over K keys is B²·Σp²/K.

    Examples
    --------
    >>> from dpsketch.privacy import per_user
    >>> curve = error_by_bound(Amount(per_user(1), 1.0, 1e-6), Guess(500_000, 20_000, 1.0, 50_000))
    >>> curve.best
    64
    """
    spread = float(real_number("spread", spread))
    if guess.users is None or amount.unit.level != "user":
        raise InvalidInput("an error against the bound on a user's keys needs users: say how many there may be.")
    if not 0 <= spread <= 5:
        raise InvalidInput("spread must lie between 0 and 5.")
    mean = guess.records / guess.users
    held = mean * np.exp(spread * ndtri((np.arange(_PEOPLE) + 0.5) / _PEOPLE) - spread**2 / 2)
    shares = guess.counts / guess.counts.sum()
    apart = math.sqrt(float(shares @ shares) / guess.keys)

    def unit(bound: int) -> Unit:
        return replace(amount.unit, max_keys=bound, chosen=False)

    noise = np.array(
        [HistogramSpec(unit(bound)).law(**amount.budget, keys=range(guess.keys)).count_error for bound in _BOUNDS]
    )
    cut = np.array([guess.users * float(np.maximum(held - bound, 0).mean()) * apart for bound in _BOUNDS])
    return BoundCurve(list(_BOUNDS), noise, cut, np.hypot(noise, cut), spread)


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
    law = spec.law(**amount.budget, keys=range(guess.keys) if needs_list else None)
    holdings = Holdings.of(guess.counts, amount.unit, guess.users)
    if limit is not None and holdings.memory > limit:
        raise InvalidInput(
            f"a histogram of these keys takes about {holdings.memory:,} bytes, more than {limit:,}. Allow more "
            "memory, or plan a sketch: counts, heavy."
        )
    predicted = predict(law, holdings)
    error = spec.grid * predicted.error
    require_reach(target_error, error, "whatever the size")
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
    return proposed(
        "histogram",
        Histogram.from_spec(spec),
        amount,
        guess,
        {},
        error,
        memory=holdings.memory,
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
    require_reach(target_error, error, f"with {size} buckets")
    spec = VoteHistogramSpec(size, amount.unit)
    shape: Shape = {"max_counters": size}
    also = {"found": names, "threshold": law.cutoff}
    notes = (f"Mechanism: {law.words}.",)
    return proposed(
        "histogram-votes", VoteHistogram.from_spec(spec), amount, guess, shape, error, also=also, notes=notes
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
