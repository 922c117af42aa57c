"""Every kind that adds noise, under both units and both relations, on five pairs of neighbours each.

The pairs: the *worst* one that a search finds; the same with the unit's records *first* in the stream; a unit that
holds a *null* beside one that holds something; keys that *collide*, with each other or with those of others; and a unit
that holds far more than the bounds let pass, which must be *clipped*. Records go in by ``update``, what comes out is
what ``release`` published, and the claim is the sentence that it printed.

Beside them *any* unit: the noise of every part is held to the law that the claimed release states for it, and the
promise restated for the part that was drawn least. A bound that no pair comes near hides no lack of noise from that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch import accounting
from dpsketch.audit.kinds import KINDS, PAIRS, Law
from dpsketch.audit.lattice import gaussian_bound, laplace_bound, least_spread, seen_numbers
from dpsketch.audit.mechanism import Budget, Claim, Finding, printed_promise
from dpsketch.audit.rows import Row
from dpsketch.audit.shown import Records, Release, Shown
from dpsketch.numbers import probability, whole_number
from dpsketch.privacy import Unit

__all__ = ["GRID", "PAIRS", "Grid"]

Numbers = npt.NDArray[Any]
# What is published of records where nothing is added.
Exact = Callable[[Records], Numbers]

_KEYS = 3
# A search looks at about so many keys in each of its steps.
_TRIED = 40


@dataclass(frozen=True, slots=True)
class Grid(Row):
    """One kind with one law, unit and relation: five pairs of neighbours, on the same many releases.

    Attributes
    ----------
    kind : str
        Its name in the table.
    law : {"gaussian", "laplace"}
        The noise.
    """

    kind: str
    law: Law

    @property
    def subject(self) -> str:
        """What is released."""
        return f"{self.kind}-{self.law}"

    def _audit(self, trials: int, confidence: float) -> list[Finding]:
        """Release ``trials`` times, and bound ε from below on each pair."""
        claimed, noise = self._drawn(trials)
        claim = Claim(*printed_promise(claimed.promise))
        findings = []
        for pair, (one, other) in self._pairs().items():
            seen, shift = seen_numbers(noise, one - other)
            if self.law == "gaussian":
                found = gaussian_bound(seen, shift, claim.delta, confidence)
            else:
                found = laplace_bound(seen, shift, confidence)
            findings.append(self._finding(pair, claim, found, trials))
        return [*findings, self._restated(claimed, claim, noise, confidence)]

    def restated(self, trials: int, confidence: float) -> Finding:
        """Release ``trials`` times, and restate the promise for the part that was drawn least."""
        trials, confidence = whole_number("trials", trials), probability("confidence", confidence)
        claimed, noise = self._drawn(trials)
        return self._restated(claimed, Claim(*printed_promise(claimed.promise)), noise, confidence)

    def _drawn(self, trials: int) -> tuple[Shown, npt.NDArray[np.float64]]:
        """Return a release of the claimed budget, and the noise that was drawn in many."""
        budget = Budget.gaussian(self.noise) if self.law == "gaussian" else Budget.pure(self.noise)
        release = self._fill(KINDS[self.kind].rest)
        base = np.rint(release(self._everything).numbers)
        noise = np.array([release(budget.spent).numbers for _ in range(trials)], dtype=np.float64) - base
        return release(budget.claimed), noise

    def _restated(self, claimed: Shown, claim: Claim, noise: npt.NDArray[np.float64], confidence: float) -> Finding:
        ends = np.cumsum([count for count, _ in claimed.spreads])
        parts = np.split(noise, ends[:-1], axis=1)
        factor = min(
            least_spread(self.law, part, spread, confidence)
            for part, (_, spread) in zip(parts, claimed.spreads, strict=True)
        )
        if factor <= 0:
            found = float("inf")
        elif self.law == "laplace":
            found = claim.epsilon / factor
        else:
            found = accounting.gaussian_epsilon(
                accounting.gaussian_mu(claim.epsilon, claim.delta) / factor, claim.delta
            )
        return self._finding("any", claim, found, len(noise))

    def _finding(self, pair: str, claim: Claim, found: float, trials: int) -> Finding:
        words = f"{_WORDS[pair]}, {self.ending}"
        finding = partial(Finding, f"{self.name}-{pair}", words, claim, found)
        if pair == "any":
            return finding("drawn noise", trials, True, "restated")
        return finding("likelihood ratio", trials, True, "law")

    @property
    def _fill(self) -> Callable[[Records], Release]:
        return partial(KINDS[self.kind].fill, self._unit)

    @property
    def _unit(self) -> Unit:
        return self.unit_of(_KEYS, KINDS[self.kind].weight)

    @property
    def _everything(self) -> dict[str, float]:
        """The budget that is as large as one can be: nothing is added."""
        return {"rho": 1e9} if self.law == "gaussian" else {"epsilon": 1e6, "delta": 0.0}

    def _exact(self) -> Exact:
        known: dict[str, Numbers] = {}

        def shown(records: Records) -> Numbers:
            name = repr(records)
            if name not in known:
                known[name] = np.rint(self._fill(records)(self._everything).numbers)
            return known[name]

        return shown

    def _pairs(self) -> dict[str, tuple[Numbers, Numbers]]:
        """Return what is published of two neighbouring streams without noise, for each pair."""
        kind, user, exact = KINDS[self.kind], self.level == "user", self._exact()
        replaced, weight, rest = self.relation == "replace", kind.weight, kind.rest

        def holding(keys: list[int], weight: float = weight) -> Records:
            return [(key, "ann", weight) for key in keys]

        null: Records = [(None, "ann", 1.0)]
        nothing: Records = null if replaced else []
        held, other = self._farthest(exact)
        one, instead = holding(held), holding(other) or nothing
        crowded = holding(self._crowded(exact))
        beside: Records = [(key, "eve", 1.0) for key, _, _ in crowded[:1]]
        # Classes and points cannot weigh more than 1.
        heavy = 50 * weight if weight > 1 else 1.0
        much = holding(list(range(0, kind.keys, 2)), heavy) if user else holding([5], heavy)
        streams = {
            "worst": (rest + one, rest + instead),
            "first": (one + rest, instead + rest),
            "null": (rest + (one if replaced else []), rest + null),
            "colliding": (beside + crowded, beside + nothing),
            "clipped": (rest + much, rest + nothing),
        }
        return {pair: (exact(streams[pair][0]), exact(streams[pair][1])) for pair in kind.pairs}

    def _moves(self, exact: Exact) -> Numbers:
        """Return by how much each key alone moves what is published (rows)."""
        kind = KINDS[self.kind]
        base = exact(kind.rest)
        return np.array([exact([*kind.rest, (key, "ann", kind.weight)]) - base for key in range(kind.keys)])

    def _norms(self, moved: Numbers) -> Numbers:
        """Return how long vectors are, in the norm that the noise is made for."""
        found: Numbers = np.sum(np.abs(moved) ** (2 if self.law == "gaussian" else 1), axis=-1)
        return found

    def _farthest(self, exact: Exact) -> tuple[list[int], list[int]]:
        """Return the keys of a unit that moves most, and of the one in its place; none where it is added.

        What single keys move is added up, beginning with each of them. Bounds that cut a user off are not in these
        sums: so the best of them and neighbouring keys are compared as they are, and then changed one by one.
        """
        kind, moves, replaced = KINDS[self.kind], self._moves(exact), self.relation == "replace"
        count = _KEYS if self.level == "user" else 1

        def grown(base: Numbers, sign: int, taken: list[int]) -> list[int]:
            """Return keys that take what is moved farther away, one after the other."""
            keys: list[int] = []
            for _ in range(count):
                norms = self._norms(base + sign * moves)
                norms[[*taken, *keys]] = -1
                keys.append(int(norms.argmax()))
                base = base + sign * moves[keys[-1]]
            return keys

        def against(one: list[int]) -> tuple[list[int], list[int]]:
            return one, grown(moves[one].sum(axis=0), -1, one) if replaced else []

        def added(pair: tuple[list[int], list[int]]) -> float:
            return float(self._norms(moves[pair[0]].sum(axis=0) - moves[pair[1]].sum(axis=0)))

        def moved(pair: tuple[list[int], list[int]]) -> float:
            sides = [exact([*kind.rest, *((key, "ann", kind.weight) for key in keys)]) for keys in pair]
            return float(self._norms(sides[0] - sides[1]))

        met = [[first, *grown(moves[first], 1, [first])[: count - 1]] for first in range(kind.keys)]
        step = -(-kind.keys // _TRIED)
        apart = [list(range(first, first + count)) for first in range(0, kind.keys - count, step)]
        tried = sorted(map(against, met), key=added)[-8:] + [against(one) for one in apart]
        best = max(tried, key=moved)
        for side, place in product((0, 1) if replaced else (0,), range(count)):
            free = [key for key in range(0, kind.keys, step) if key not in (*best[0], *best[1])]
            changed = [(list(best[0]), list(best[1])) for _ in free]
            for pair, key in zip(changed, free, strict=True):
                pair[side][place] = key
            best = max([best, *changed], key=moved)
        return best

    def _crowded(self, exact: Exact) -> list[int]:
        """Return neighbouring keys of a unit that meet in a number: it moves farther than any other."""
        kind, moves = KINDS[self.kind], self._moves(exact)
        count = _KEYS if self.level == "user" else 1
        sums = np.array([moves[first : first + count].sum(axis=0) for first in range(kind.keys - count)])
        first = int(np.abs(sums).max(axis=1).argmax())
        return list(range(first, first + count))


_WORDS = {
    "worst": "the unit that moves most",
    "first": "the unit that moves most, first in the stream",
    "null": "a unit that holds a null",
    "colliding": "a unit whose keys share their cells with each other or with somebody else's",
    "clipped": "a unit that holds far more than the bounds let pass",
    "any": "any unit",
}


def _grid() -> Iterator[Grid]:
    for name, kind in KINDS.items():
        for law, level, relation in product(kind.laws, kind.levels, kind.relations):
            yield Grid(name, law, level=level, relation=relation)


GRID: dict[str, Grid] = {grid.name: grid for grid in _grid()}
