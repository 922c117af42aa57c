"""Decode many candidate keys jointly, so that they stop hiding each other.

A collision is an error only as long as the other key's count is unknown. Given candidates, each cell is cleared of what
the *other rows* say its keys have: every key sends each of its cells a message, the expectation of its count given its
other rows, and all messages are renewed in turn until they settle. A key's count is then read off its cells, cleared of
the other keys' messages. Everything here is post-processing.

No cell is cleared by a message that has used that cell. So what is left of the table is what held-out rows leave, and
errors seen on it need no allowance for the freedom of a fit: pseudo-keys meet in it what a key meets. This is exact as
long as two keys share no two cells, and nearly so in wide tables. With fewer than three rows there is nothing to hold
out; there, and wherever pseudo-keys do not have less error than on the table as it was, the answer is that of plain
estimation. In a narrow table many keys share two cells and more; there intervals are those of plain estimation, widened
to lie around the value. Where a heavy key shares two of few rows with an absent one, that may take its place for good.
Cells of their neighbours, which nothing explains, tell; those around them are then asked anew. Candidates that no row
tells apart are decoded as one key (:class:`~dpsketch.sketches.countsketch.messages.Twins`).

The prior of a count is a mixture of a zero and half-normal laws of all scales (normal ones where counts may be
negative), whose shares are learned from all keys. It moves the messages that a key sends, and so other keys' readings,
but no key's own. Given its reading, a key's count has a posterior mean. Over all keys that has the least error, because
it takes the small ones for nothing, and keys in the middle pay for it. So the default goes from the reading towards the
posterior mean, by less than half a standard error: limited translation (Efron and Morris 1972, JASA 67, 130–139), which
costs no key more than 8% of its error. Intervals are those of the reading, whatever is shown in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, assert_never

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import countsketch as kernels
from dpsketch.arrays import Floats
from dpsketch.distributions import normal_quantile
from dpsketch.hashing import fingerprint, row_keys
from dpsketch.privacy import Budget
from dpsketch.sketches.countsketch.estimates import (
    Location,
    choose_location,
    error_quantile,
    half_width,
    pseudo_cells,
    root_mean_square,
)
from dpsketch.sketches.countsketch.messages import (
    CHUNK,
    LEAST_SCALE,
    ROUND,
    Attempt,
    Exchange,
    Messages,
    Prior,
    find_twins,
    places_of,
    read_off,
)

if TYPE_CHECKING:
    from dpsketch.sketches.countsketch.spec import CountSketchSpec


Prints = npt.NDArray[np.uint64]

Shown = Literal["limited", "unshrunk", "posterior_mean"]

# Tables with fewer rows are not decoded jointly.
LEAST_ROWS = 3
# In a narrower table keys share so many cells that a row is not held out from the others: intervals are plain ones.
_NARROW = 64
_SWEEPS = 40
# After so many sweeps, so many rounds of four that gain nothing end the exchange.
_YOUTH = 12
_PATIENCE = 2
# A later sweep must promise this much less error.
_SWEEP_GAIN = 0.995
# How often keys may be asked anew where some have taken another's place.
_RESTARTS = 2
# How many standard errors a value may be moved towards its posterior mean. The least that is enough to be as good as
# least squares over all keys, where nearly all of them are nothing, is a third.
_FARTHEST = 0.4
# Steps by which a prior is learned from plain estimates.
_STEPS = 20
# How much of a normal law lies within one standard deviation.
_ONE_DEVIATION = 0.6827


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """A jointly decoded table.

    Attributes
    ----------
    values : numpy.ndarray
        What was read of each candidate, in counters: not shrunk. Those that no row tells apart have equal parts of
        what was read of their sum.
    errors : numpy.ndarray
        The standard error of each; of those that no row tells apart, of their sum.
    remaining : numpy.ndarray
        The table without the candidates' messages; the table itself where plain estimation was better.
    spreads : numpy.ndarray
        The variance of each of its cells.
    reading : Location or float
        How keys are read off it: plainly, or weighted by Student's law with so many degrees of freedom.
    errors_seen : numpy.ndarray
        Errors of pseudo-keys on ``remaining``, in counters.
    scores : numpy.ndarray
        The same over their standard errors.
    noise_scale : float
        Standard deviation of the noise in one counter.
    messages : Messages or None
        What the other rows said of each candidate's count, those that no row tells apart being one, for more candidates
        to go on from; nothing where plain estimation was better or nobody is to go on.
    prior : Prior
        The law of counts that was learned; where plain estimation was better, one to begin with.
    plain : Decoded or None
        Of a narrow table: what plain estimation says.
    alike : numpy.ndarray or float
        How many candidates each one was decoded together with as one, itself included.
    unknown : numpy.ndarray or float
        How far each may be from its value although the sum of those was read without error.
    """

    values: Floats
    errors: Floats
    remaining: Floats
    spreads: Floats
    reading: Location | float
    errors_seen: Floats
    scores: Floats
    noise_scale: float
    messages: Messages | None
    prior: Prior
    plain: Decoded | None = None
    alike: Floats | float = 1.0
    unknown: Floats | float = 0.0

    @property
    def error(self) -> float:
        """Root mean square error of an absent key's estimate."""
        return root_mean_square(self.errors_seen)

    def half_widths(self, confidence: float) -> Floats:
        """Half-widths, in counters, of an interval around each value."""
        if isinstance(self.reading, Location):
            return np.full(len(self.values), half_width(self.remaining, self.reading, confidence))
        root = math.sqrt(len(self.remaining))
        cells = self.remaining / np.sqrt(self.spreads)
        # All rows have the same keys, so that what they say of the errors is what one of them says.
        freedom = self.remaining.shape[1] - 1
        quantile = root * error_quantile(np.abs(self.scores) / root, cells, confidence, freedom)
        # No estimate is better than the mean of rows that collide with nothing.
        least = normal_quantile(confidence) * self.noise_scale / root
        half: Floats = np.maximum(quantile * self.errors, least) + self.unknown
        if self.plain is not None:
            half = np.maximum(half, np.abs(self.values - self.plain.values) + self.plain.half_widths(confidence))
        return half

    def far_half_widths(self, confidence: float) -> Floats:
        """Half-widths for a confidence close to 1, as many intervals that are to hold at once need it.

        A key's own error says little about its far tail: rows that disagree widen it beyond what any key would need.
        So a key has the narrower of its own interval and one that is the same for all. Each of them fails with half of
        the probability allowed, and costs hardly more that far out.
        """
        each = (1 + confidence) / 2
        own = self.half_widths(each)
        if isinstance(self.reading, Location) or self.plain is not None:
            return own
        alike = error_quantile(np.abs(self.errors_seen), self.remaining, each, self.remaining.shape[1] - 1)
        return np.minimum(own, alike + self.unknown)

    def shown(self, what: Shown) -> Floats:
        """Return what is shown of each candidate; of plain estimates, they themselves unless the mean is asked for."""
        match what:
            case "unshrunk":
                return self.values
            case "posterior_mean":
                return self._expected()
            case "limited":
                if isinstance(self.reading, Location):
                    return self.values
                farthest = _FARTHEST * self.errors / self.alike
                moved: Floats = self.values + np.clip(self._expected() - self.values, -farthest, farthest)
                return moved
            case _:
                assert_never(what)

    def _expected(self) -> Floats:
        if not isinstance(self.reading, Location):
            return self.prior.expect(self.alike * self.values, self.errors**2)[0] / self.alike
        # Plain errors are often those of a few heavy keys: what most of them stay within is the scale of the others.
        usual = float(np.quantile(np.abs(self.errors_seen), _ONE_DEVIATION))
        least = self.noise_scale / math.sqrt(len(self.remaining))
        variances = np.full(len(self.values), max(usual, least, LEAST_SCALE) ** 2)
        prior = self.prior
        for _ in range(_STEPS):
            prior = prior.learned(prior.expect(self.values, variances)[1])
        return prior.expect(self.values, variances)[0]

    def without_messages(self) -> Decoded:
        """Return the same in less memory; more candidates cannot go on from it."""
        return replace(self, messages=Messages.silent(0, len(self.remaining)))

    def of_all(self, prints: Prints, row_keys: Prints) -> Decoded:
        """Return the same of other candidates, all of them read as if they were absent."""
        return replace(self, values=self.read(prints, row_keys), errors=np.full(len(prints), self.error))

    def read(self, prints: Prints, row_keys: Prints) -> Floats:
        """Estimate keys that were not among the candidates."""
        found = np.empty(len(prints))
        for start in range(0, len(prints), CHUNK):
            piece = prints[start : start + CHUNK]
            if isinstance(self.reading, Location):
                values = self.reading(kernels.row_values(self.remaining, piece, row_keys))
            else:
                places, signs = places_of(piece, row_keys, self.remaining.shape[1])
                silent = Messages.silent(len(piece), len(row_keys))
                left = (self.remaining, self.spreads, self.noise_scale)
                (values,), _ = read_off(places, signs, silent, 1.0, *left, self.reading)
            found[start : start + CHUNK] = values
        return found


def joint_decode(
    table: npt.NDArray[np.int64] | npt.NDArray[np.float64],
    prints: Prints,
    row_keys: Prints,
    noise_scale: float,
    *,
    signed: bool = False,
    start: Decoded | None = None,
    resumable: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Decoded:
    """Estimate candidates together.

    Parameters
    ----------
    table : numpy.ndarray
        The released counters.
    prints : numpy.ndarray
        Distinct fingerprints.
    row_keys : numpy.ndarray
        The keys of the rows.
    noise_scale : float
        Standard deviation of the noise in one counter.
    signed : bool
        Whether counts may be negative, as in a difference of releases.
    start : Decoded, optional
        The table as it was decoded with the first of these candidates, resumably.
    resumable : bool
        Whether the result may be the start of another.
    progress : callable, optional
        Is told after each sweep how many there were, and how many there are at most.
    """
    counters = table.astype(np.float64)
    plain = _plain(counters, noise_scale, signed)
    if len(table) < LEAST_ROWS or len(prints) == 0:
        return plain.of_all(prints, row_keys)
    twins = find_twins(prints, row_keys, table.shape[1])
    listed = prints if twins is None else prints[twins.first]
    sent = None if start is None else start.messages
    exchange = Exchange(counters, listed, row_keys, noise_scale, signed, sent, resumable)
    kept, least = None, plain.error
    for _ in range(1 + _RESTARTS):
        better = _settled(exchange, least, progress)
        if better is None:
            break
        kept, least = better, _SWEEP_GAIN * better.error
        if not exchange.doubt(kept):
            break
    if kept is None:
        return plain.of_all(prints, row_keys)
    values, errors = exchange.values, exchange.errors
    sent = exchange.kept if resumable else None
    left = (kept.remaining, kept.spreads, kept.freedom, kept.seen, kept.scores)
    narrow = plain.of_all(prints, row_keys) if table.shape[1] < _NARROW else None
    if twins is None:
        return Decoded(values, errors, *left, exchange.scale, sent, kept.prior, narrow)
    alike = twins.alike.astype(np.float64)
    values, errors = values[twins.group] / alike, errors[twins.group]
    unknown = twins.unknown(values, float(np.abs(counters).max()), signed)
    return Decoded(values, errors, *left, exchange.scale, sent, kept.prior, narrow, alike, unknown)


def _settled(exchange: Exchange, least: float, progress: Callable[[int, int], None] | None) -> Attempt | None:
    """Let messages be exchanged until they settle, and keep the best attempt whose error is below ``least``."""
    kept, wasted, settled = None, 0, False
    while not settled:
        exchange.sweep()
        if progress is not None:
            progress(exchange.sweeps_in_all, (1 + _RESTARTS) * _SWEEPS)
        settled = exchange.has_settled() or exchange.sweeps == _SWEEPS
        if settled or exchange.sweeps % ROUND == 0:
            attempt = exchange.attempt()
            wasted += 1
            if attempt.error < least:
                kept, least, wasted = exchange.keep(attempt), _SWEEP_GAIN * attempt.error, 0
            settled = settled or (wasted >= _PATIENCE and exchange.sweeps >= _YOUTH)
    return kept


def _plain(counters: Floats, noise_scale: float, signed: bool) -> Decoded:
    """Return what plain estimation says, as yet of no key."""
    location = choose_location(counters, noise_scale)
    seen = location(pseudo_cells(counters))
    empty = np.empty(0)
    prior = Prior.of(counters, noise_scale, signed)
    return Decoded(empty, empty, counters, empty, location, seen, empty, noise_scale, None, prior)


@dataclass(frozen=True, slots=True)
class CountPrediction:
    """What estimates from a release are expected to be worth.

    Attributes
    ----------
    error : float
        Root mean square error of :meth:`~dpsketch.PrivateCountSketch.estimate`.
    half_width : float
        Half-width of its 95% intervals.
    decoded_error : float
        Root mean square error of :meth:`~dpsketch.PrivateCountSketch.decode` over all keys.
    noise_scale : float
        Standard deviation of the noise in one counter.
    memory : int
        Bytes of the table while it counts.
    """

    error: float
    half_width: float
    decoded_error: float
    noise_scale: float
    memory: int


def rehearse(spec: CountSketchSpec, counts: npt.NDArray[np.float64], budget: Budget) -> CountPrediction:
    """Build the table that the guessed counts would make, add noise of the very law, and read the errors off it.

    Which keys have which counts does not matter to the law of the errors, so the guess needs none.
    """
    noise = spec.laws(budget)[0].noise
    keys = row_keys(spec.seed, spec.rows)
    prints = fingerprint(np.arange(len(counts))).fingerprints
    units = np.rint(counts / spec.grid).astype(np.int64)
    table = noise.sample(spec.rows * spec.width).reshape(spec.rows, spec.width)
    kernels.add_weighted(table, prints, keys, units)
    scale = math.sqrt(noise.variance)
    location = choose_location(table, scale)
    decoded = joint_decode(table, prints, keys, scale)
    return CountPrediction(
        error=spec.grid * root_mean_square(location(pseudo_cells(table))),
        half_width=spec.grid * half_width(table, location, 0.95),
        decoded_error=spec.grid * root_mean_square(decoded.shown("limited") - units),
        noise_scale=spec.grid * scale,
        memory=spec.memory,
    )
