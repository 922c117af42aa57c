"""Keys that are discovered day by day: a name is published once its noisy total passes a threshold.

Every key that ever came has a row: its publications over *all* days from the first on, with noise for days before it
came drawn when it comes, under the same design as a public list. From then on, on **every** day, its decoded total S_t
is held against T_t; on the first day that it passes, the key's name and all its publications so far are shown, and each
later one on its day.

**Privacy.** Let σ be the noise, B_t the weights of the total, W what one unit adds to one key in all, ℓ the keys that
it touches in all, n the days, and

    T_t = W + (½ + floors)·‖B_t‖₁ + σ·‖B_t‖₂·Q⁻¹(δ_T/(n·ℓ)).

Let D' have a unit more than D, and E the event that some key passes on a day when in D' only the unit has touched it. E
follows from the publications alone, and has a probability of at most δ_T in either world: n·ℓ looks, in each of which
rounding and floors move the total by no more than what the second term allows. Off E, what is shown is one function
of the publications in both worlds, that of D's schedule, and the publications are one Gaussian mechanism of μ. So all
that is shown is (ε, δ_G(ε; μ) + δ_T)-private. Where a unit is replaced, there are two such events, one of each unit,
and each gets half of δ_T.

Looking only on days on which a key has records would be wrong, and so would counting its days from its first: a unit
would then change the schedule of keys that others have, which E does not cover.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeGuard

import numpy as np
from scipy.special import ndtri

from dpsketch import accounting, files
from dpsketch.arrays import Floats, Integers
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.noise import Noise, RoundedGaussian, random_id
from dpsketch.privacy import ApproximateCost, Budget, Cost, Guarantee
from dpsketch.sketches.continual.designs import Contribution, Design, Filter
from dpsketch.sketches.continual.publications import Publications
from dpsketch.sketches.continual.stream import PUBLICATIONS, Stream, Terms, unpaid
from dpsketch.sketches.documents import integer_array
from dpsketch.sketches.permit import Calibration, Part, Permit

__all__ = ["Finding", "NamedStream", "not_of_days", "read_keys", "stored_keys"]


# The part of δ for names; the rest is for counts.
_NAMES_SHARE = 0.1
# A hair more noise, and a hair higher thresholds, than all roundings here come to.
_MARGIN = 1 + 1e-9
# By so much, far less than that hair, another machine's logarithms may differ from those that calibrated a stream.
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Finding:
    """The mechanism: noise on every key's publications, and thresholds.

    Attributes
    ----------
    noise : RoundedGaussian
        In every publication of every key.
    epsilon, delta : float
        What all days together cost.
    looks : float
        The probability δ_T/(n·ℓ) of one look.
    most : int
        W, what one unit adds to one key in all.
    """

    noise: RoundedGaussian
    epsilon: float
    delta: float
    looks: float
    most: int

    @classmethod
    def calibrated(cls, epsilon: float, delta: float, design: Filter, unit: Contribution, horizon: int) -> Self:
        """Return the noise and the thresholds that a budget asks for."""
        names = delta * _NAMES_SHARE
        mu = accounting.gaussian_mu(epsilon, (delta - names) / _MARGIN)
        sigma = design.sensitivity(unit, horizon).l2 / mu * _MARGIN
        held = unit.within(horizon)
        # A key gets at most what one unit adds to all of them on each of its days.
        touched = held.cells * held.days
        looks = names / (held.times * horizon * touched)
        return cls(RoundedGaussian(sigma), epsilon, delta, looks, held.most * held.days)

    @property
    def words(self) -> str:
        """The mechanism in a phrase."""
        return f"{self.noise.words} in each publication of each key, whose name is shown once its total stands out"

    @property
    def costs(self) -> tuple[Cost, ...]:
        """What drawing it costs."""
        return (ApproximateCost(self.epsilon, self.delta),)

    def draw(self, *data: Any) -> Integers:
        """Return publications with fresh noise. Called by a permit only."""
        (table,) = data
        noisy: Integers = table.copy()
        days = noisy.reshape(math.prod(table.shape[:-1]), table.shape[-1])  # there may be no key yet
        for row in days:  # one after the other: a draw takes several times its room
            row += self.noise.sample(len(row))
        return noisy

    def threshold(self, design: Filter, day: int) -> float:
        """Return T_t."""
        weights = design.weights(1, day)
        rounding = (0.5 + design.stray) * float(np.abs(weights).sum())
        spread = self.noise.sigma * math.sqrt(float(np.sum(weights**2)))
        return (self.most + rounding + spread * -float(ndtri(self.looks))) * _MARGIN


class NamedStream(Stream):
    """The publications of keys that are found on the way. Sensitive: keys that did not pass are in it."""

    __slots__ = ("_finding", "_names", "_nonces", "_passed", "_places", "_salt")

    def __init__(self, terms: Terms, permit: Permit) -> None:
        super().__init__(terms, permit)
        self._finding = _finding(permit.calibration)
        self._names: list[Any] = []
        self._places: dict[Any, int] = {}
        self._passed: Integers = np.zeros(0, np.int64)  # on which day a key did; 0 for not yet
        self._salt = random_id()
        self._nonces: list[bytes] = []  # one a day, by which copies that went on apart are told

    @classmethod
    def calibrated(cls, budget: Budget, terms: Terms) -> Calibration:
        """Return the noise and the thresholds that a budget asks for."""
        design, cost = terms.design, budget.cost
        if not isinstance(cost, ApproximateCost) or not _serves(design):
            raise InvalidInput(
                "names that are on no public list need epsilon= with delta > 0, and no design of blocks, nor one whose "
                "state may be seized, which would show them. Else give a public list: keys=[…]."
            )
        finding = Finding.calibrated(cost.epsilon, cost.delta, design, terms.contribution, terms.horizon)
        return _calibration(finding, terms.horizon, f"{finding.words}, {design.words}")

    @classmethod
    def stated(cls, promise: Guarantee, law: Noise, terms: Terms) -> Calibration:
        """Return the calibration that a file claims, its thresholds worked out anew; refuse one that does not pay.

        Its noise may be more than is needed, and less by roundings only: a stream goes on where it was calibrated by
        another library of logarithms.
        """
        design = terms.design
        if _serves(design) and isinstance(law, RoundedGaussian) and 0 < promise.delta < 1 and promise.rho is None:
            asked = Finding.calibrated(promise.epsilon, promise.delta, design, terms.contribution, terms.horizon)
            if law.sigma >= asked.noise.sigma * (1 - _ROUNDING) and promise.costs == asked.costs:
                return _calibration(replace(asked, noise=law), terms.horizon, promise.mechanism)
        raise unpaid()

    @classmethod
    def drawn(cls, design: Design, day: int) -> list[tuple[str, Hashable]]:
        """Return all that may have been drawn by a day."""
        return [(PUBLICATIONS, (t, earlier)) for t in range(1, day + 1) for earlier in (False, True)]

    @classmethod
    def noise_of(cls, calibration: Calibration) -> Noise:
        """Return the noise in each cell of what is published."""
        return _finding(calibration).noise

    @property
    def law(self) -> RoundedGaussian:
        """The noise in each cell of a publication."""
        return self._finding.noise

    @property
    def found(self) -> list[Any]:
        """The keys whose names are public, in their own order."""
        return [self._names[place] for place in self._shown()]

    @property
    def tables(self) -> Integers:
        """All that was published of the keys that were found, in order. Public."""
        shown = self._shown()
        return np.array([table[shown] for table in self._tables], np.int64).reshape(len(self._tables), len(shown))

    @property
    def ceiling(self) -> tuple[float, float]:
        """The threshold of today that the total of a key which was not found did not pass, and its noise."""
        weights = self._filter.weights(1, max(1, self._day))
        threshold = self._finding.threshold(self._filter, max(1, self._day))
        return threshold, math.sqrt(self.law.variance * float(np.sum(weights**2)))

    @property
    def _filter(self) -> Filter:
        assert isinstance(self._design, Filter)
        return self._design

    def _shown(self, day: int | None = None) -> list[int]:
        """Return the places of the keys that had passed by a day, in the order of the keys."""
        last = self._day if day is None else day
        places = np.flatnonzero((self._passed > 0) & (self._passed <= last))
        return sorted(places.tolist(), key=lambda place: self._names[place])

    def digest_of(self, day: int) -> str:
        """Return a digest of what a day published, and of nothing that it did not: few values could be searched."""
        found = hashlib.sha256(b"names %d " % day)
        # Random, and drawn with the day: while no key is found, nothing else tells two copies apart.
        found.update(self._nonces[day - 1] if 0 < day <= len(self._nonces) else b"")
        for place in self._shown(day):
            name = self._names[place]
            found.update(name if isinstance(name, bytes) else b"%d" % name)
            days = range(day) if self._passed[place] == day else [day - 1]
            found.update(np.array([self._tables[t][place] for t in days], "<i8").tobytes())
        return found.hexdigest()

    @property
    def name(self) -> str:
        """What tells this stream from others. Public."""
        charge = self._permit.charge
        terms = [self._salt, self._design.to_json(), self._horizon, None if charge is None else charge.digest]
        return hashlib.sha256(json.dumps(terms, sort_keys=True).encode()).hexdigest()[:32]

    def end_day(self, today: Any) -> None:
        """Publish a day: ``today`` says how much each key has. Called within a change of the owner."""
        self.refuse_after_the_end()
        self._day += 1
        self._nonces.append(bytes.fromhex(random_id()))
        self._welcome([name for name in today if name not in self._places])
        counts = np.array([today.get(name, 0) for name in self._names], np.int64)
        permit = self._permit
        for _, table in self._design.step(self._state, counts, self._day):
            self._tables.append(permit.draw(PUBLICATIONS, table, piece=(self._day, False)))
        total = self._total(self._filter.weights(1, self._day))
        passes = (self._passed == 0) & (total > self._finding.threshold(self._filter, self._day))
        self._passed[passes] = self._day

    def _welcome(self, new: list[Any]) -> None:
        """Give keys that came for the first time a row, with noise of the days before."""
        if not new:
            return
        for name in new:
            self._places[name] = len(self._names)
            self._names.append(name)
        permit, nothing = self._permit, np.zeros(len(new), np.int64)
        self._state = np.concatenate([self._state, np.zeros((len(self._state), len(new)), np.int64)], axis=1)
        self._passed = np.concatenate([self._passed, nothing])
        earlier = permit.draw(PUBLICATIONS, np.zeros((self._day - 1, len(new)), np.int64), piece=(self._day, True))
        self._tables = [np.concatenate(pair) for pair in zip(self._tables, earlier, strict=True)]

    def _total(self, weights: Floats) -> Floats:
        total = np.zeros(len(self._names))
        for weight, table in zip(weights.tolist(), self._tables, strict=False):
            total += weight * table
        return total

    def published(self) -> Publications:
        """Return all that was published of the keys that were found. Public.

        Without marks: while no key is found there is nothing to tell copies by.
        """
        self._refuse_before_the_first()
        shown, noise = self._shown(), self._finding.noise
        tables, none = [table[shown] for table in self._tables], np.zeros(0, np.uint64)
        return Publications(self.name, self._design, self._day, noise, tables, none, self.found, self.ceiling)

    def arrays(self) -> dict[str, files.Array]:
        """Return what a file keeps of the stream, in the order of the keys, which tells nothing. Sensitive."""
        order = sorted(range(len(self._names)), key=lambda place: self._names[place])
        published = np.array([table[order] for table in self._tables], np.int64).reshape(self._day, len(order))
        names = stored_keys([self._names[place] for place in order])
        arrays: dict[str, files.Array] = {"state": self._state[:, order], "published": published, "names": names}
        return {**arrays, "passed": self._passed[order], "salt": [bytes.fromhex(self._salt), *self._nonces]}

    def restore(self, document: files.Document, day: int) -> None:
        """Take up a stream where a file left it."""
        names, salt = read_keys(document), document.arrays.get("salt")
        if not isinstance(salt, list) or len(salt) != 1 + day or not all(isinstance(each, bytes) for each in salt):
            raise not_of_days()
        self._state = integer_array(document, "state", (self._design.buffers, len(names)))
        self._refuse_other_state()
        self._tables = list(integer_array(document, "published", (day, len(names))))
        self._passed = integer_array(document, "passed", (len(names),))
        if np.any((self._passed < 0) | (self._passed > day)):
            raise not_of_days()
        self._names, self._places = names, {name: place for place, name in enumerate(names)}
        first, *nonces = [each for each in salt or [] if isinstance(each, bytes)]
        self._salt, self._nonces = first.hex(), nonces
        self._day = day


def stored_keys(names: Sequence[Any]) -> files.Array:
    """Return keys as a file has them: the bytes of texts, or integers."""
    return list(names) if names and isinstance(names[0], bytes) else np.array(names, np.int64)


def read_keys(document: files.Document) -> list[Any]:
    """Return the keys of a file, which may have been written by anyone."""
    stored = document.arrays.get("names")
    names: list[Any] = stored.tolist() if isinstance(stored, np.ndarray) else list(stored or [])
    known = all(isinstance(each, int | bytes) for each in names) and len({type(each) for each in names}) <= 1
    if not known or len(set(names)) < len(names):
        raise not_of_days()
    return names


def not_of_days() -> FileRefused:
    """Return the refusal of a file whose days or keys no stream has published."""
    return FileRefused("the file's days and keys are not those of a stream.")


def _serves(design: Design) -> TypeGuard[Filter]:
    """Say whether keys can be found under a design."""
    return isinstance(design, Filter) and not design.keeps_noise


def _finding(calibration: Calibration) -> Finding:
    law = calibration.part(PUBLICATIONS).law
    assert isinstance(law, Finding)
    return law


def _calibration(finding: Finding, horizon: int, words: str) -> Calibration:
    part = Part(PUBLICATIONS, finding, pieces=2 * horizon)
    return Calibration((part,), finding.costs, finding.epsilon, finding.delta, None, words)
