"""Every kind that adds noise, under both units and both relations, on five pairs of neighbours each.

The pairs: the *worst* one that a search finds; the same with the unit's records *first* in the stream; a unit that
holds a *null* beside one that holds something; keys that *collide*, with each other or with those of others; and a unit
that holds far more than the bounds let pass, which must be *clipped*. Records go in by ``update``, what comes out is
what ``release`` published, and the claim is the sentence that it printed.

Beside them *any* unit: the noise of every part is held to the law that the claimed release states for it, and the
promise restated for the part that was drawn least. A bound that no pair comes near hides no lack of noise from that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch.audit.bounds import Outputs, Scores, known, linear_discriminant
from dpsketch.audit.findings import (
    GAUSSIAN,
    PURE,
    Attacked,
    AuditRow,
    Finding,
    Mechanism,
    claim_of,
    printed_promise,
    spent,
)
from dpsketch.audit.kinds import KINDS, PAIRS, AttackedKind, Law, Records, Release, Shown
from dpsketch.audit.losses import gaussian_bound, laplace_bound, laplace_scale, least_spread, seen_numbers
from dpsketch.numbers import probability, whole_number

__all__ = ["GRID", "PAIRS", "AttackGrid"]

Numbers = npt.NDArray[Any]
# What is published of records where nothing is added.
Exact = Callable[[Records], Numbers]

_KEYS = 3
# A search looks at about so many keys in each of its steps.
_TRIED = 40


@dataclass(frozen=True, slots=True)
class AttackGrid(AuditRow):
    """One kind with one law, unit and relation: five pairs of neighbours, on the same many releases."""

    @property
    def kind(self) -> str:
        """Its name in the table of kinds."""
        return self.subject.rpartition("-")[0]

    @property
    def law(self) -> Law:
        """The noise."""
        return "gaussian" if self.subject.endswith("-gaussian") else "laplace"

    def _audit(self, trials: int, confidence: float) -> list[Finding]:
        """Release ``trials`` times, and bound ε from below on each pair."""
        claimed, noise = self._drawn(trials)
        claim = printed_promise(claimed.promise)
        findings, exact = [], self._exact()
        for pair, (one, other) in self._streams(exact).items():
            seen, shift = seen_numbers(noise, exact(one) - exact(other))
            if self.law == "gaussian":
                found = gaussian_bound(seen, shift, claim.delta, confidence)
            else:
                found = laplace_bound(seen, shift, confidence)
            findings.append(self.finding((pair, _WORDS[pair]), claim, found, "likelihood ratio", trials, "law"))
        return [*findings, self._restated(claimed, noise, confidence)]

    def restated(self, trials: int, confidence: float) -> Finding:
        """Release ``trials`` times, and restate the promise for the part that was drawn least."""
        trials, confidence = whole_number("trials", trials), probability("confidence", confidence)
        return self._restated(*self._drawn(trials), confidence)

    def sampled(self, name: str) -> Mechanism:
        """Return the worst pair to be sampled: the noise is not measured, and the attacker trusts its stated law."""
        within, without = map(self._fill, self._streams(self._exact(), crowding=1e-3)["worst"])
        base, there = (np.rint(side(self._everything).numbers) for side in (without, within))
        asked, shift = spent(self._claimed, self.noise), there - base
        spread = np.concatenate([np.full(count, spread) for count, spread in without(asked).spreads])

        def ratio(outputs: Outputs) -> Scores:
            """Return the log-likelihood ratio of runs (rows), of the Gaussian that rounded noise was rounded from."""
            centred = outputs - base
            if self.law == "gaussian":
                return np.asarray(centred @ (shift / spread**2))
            return np.asarray((np.abs(centred) - np.abs(centred - shift)) @ (1 / laplace_scale(spread)))

        def runs(side: Release) -> Callable[[int], Outputs]:
            return lambda trials: np.array([side(asked).numbers for _ in range(trials)], dtype=np.float64)

        attackers = {"likelihood ratio": known(ratio), "learned": linear_discriminant}
        claim = claim_of(without(self._claimed).promise)
        return Mechanism(name, self.words(_WORDS["worst"]), claim, runs(without), runs(within), attackers)

    def _drawn(self, trials: int) -> tuple[Shown, npt.NDArray[np.float64]]:
        """Return a release of the claimed budget, and the noise that was drawn in many."""
        asked = spent(self._claimed, self.noise)
        release = self._fill(self._kind.rest)
        base = np.rint(release(self._everything).numbers)
        noise = np.array([release(asked).numbers for _ in range(trials)], dtype=np.float64) - base
        return release(self._claimed), noise

    def _restated(self, claimed: Shown, noise: npt.NDArray[np.float64], confidence: float) -> Finding:
        claim = printed_promise(claimed.promise)
        ends = np.cumsum([count for count, _ in claimed.spreads])
        parts = np.split(noise, ends[:-1], axis=1)
        factor = min(
            least_spread(self.law, part, spread, confidence)
            for part, (_, spread) in zip(parts, claimed.spreads, strict=True)
        )
        kept = Attacked(epsilon=claim.epsilon, delta=claim.delta)
        found = spent(kept, factor)["epsilon"] if factor > 0 else float("inf")
        return self.finding(("any", "any unit"), claim, found, "drawn noise", len(noise), "restated")

    @property
    def _kind(self) -> AttackedKind:
        return KINDS[self.kind]

    @property
    def _fill(self) -> Callable[[Records], Release]:
        return partial(self._kind.fill, self.unit_of(_KEYS, self._kind.weight))

    @property
    def _claimed(self) -> Attacked:
        return GAUSSIAN if self.law == "gaussian" else PURE

    @property
    def _everything(self) -> dict[str, float]:
        """The budget that is as large as one can be: nothing is added."""
        return {"rho": 1e9} if self.law == "gaussian" else {"epsilon": 1e6, "delta": 0.0}

    def _exact(self) -> Exact:
        found: dict[str, Numbers] = {}

        def shown(records: Records) -> Numbers:
            name = repr(records)
            if name not in found:
                found[name] = np.rint(self._fill(records)(self._everything).numbers)
            return found[name]

        return shown

    def _streams(self, exact: Exact, crowding: float = 0.0) -> dict[str, tuple[Records, Records]]:
        """Return two neighbouring streams for each pair that exists.

        Of pairs that move as much, the one that moves fewer numbers is told apart by fewer samples: ``crowding`` is
        what a square adds to a size.
        """
        kind, rest, weight = self._kind, self._kind.rest, self._kind.weight

        def holding(keys: list[int], weight: float = weight) -> Records:
            return [(key, "ann", weight) for key in keys]

        null: Records = [(None, "ann", 1.0)]
        nothing: Records = null if self.replaced else []
        held, other = self._farthest(exact, crowding)
        one, instead = holding(held), holding(other) or nothing
        crowded = holding(self._crowded(exact))
        beside: Records = [(key, "eve", 1.0) for key, _, _ in crowded[:1]]
        # Classes and points cannot weigh more than 1.
        heavy = 50 * weight if weight > 1 else 1.0
        much = holding(list(range(0, kind.keys, 2)), heavy) if self.level == "user" else holding([5], heavy)
        streams = {
            "worst": (rest + one, rest + instead),
            "first": (one + rest, instead + rest),
            "null": (rest + (one if self.replaced else []), rest + null),
            "colliding": (beside + crowded, beside + nothing),
            "clipped": (rest + much, rest + nothing),
        }
        return {pair: streams[pair] for pair in kind.pairs}

    def _moves(self, exact: Exact) -> Numbers:
        """Return by how much each key alone moves what is published (rows)."""
        kind = self._kind
        base = exact(kind.rest)
        return np.array([exact([*kind.rest, (key, "ann", kind.weight)]) - base for key in range(kind.keys)])

    def _norms(self, moved: Numbers, crowding: float) -> Numbers:
        """Return how long vectors are, in the norm that the noise is made for."""
        sizes = moved**2 if self.law == "gaussian" else np.abs(moved) + crowding * moved**2
        return np.asarray(np.sum(sizes, axis=-1))

    def _farthest(self, exact: Exact, crowding: float) -> tuple[list[int], list[int]]:
        """Return the keys of a unit that moves most, and of the one in its place; none where it is added.

        What single keys move is added up, beginning with each of them. Bounds that cut a user off are not in these
        sums: so the best of them and neighbouring keys are compared as they are, and then changed one by one.
        """
        kind, moves, replaced = self._kind, self._moves(exact), self.replaced
        count = _KEYS if self.level == "user" else 1

        def grown(base: Numbers, sign: int, taken: list[int]) -> list[int]:
            """Return keys that take what is moved farther away, one after the other."""
            keys: list[int] = []
            for _ in range(count):
                norms = self._norms(base + sign * moves, crowding)
                norms[[*taken, *keys]] = -1
                keys.append(int(norms.argmax()))
                base = base + sign * moves[keys[-1]]
            return keys

        def against(one: list[int]) -> tuple[list[int], list[int]]:
            return one, grown(moves[one].sum(axis=0), -1, one) if replaced else []

        def added(pair: tuple[list[int], list[int]]) -> float:
            return float(self._norms(moves[pair[0]].sum(axis=0) - moves[pair[1]].sum(axis=0), crowding))

        def moved(pair: tuple[list[int], list[int]]) -> float:
            sides = [exact([*kind.rest, *((key, "ann", kind.weight) for key in keys)]) for keys in pair]
            return float(self._norms(sides[0] - sides[1], crowding))

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
        kind, moves = self._kind, self._moves(exact)
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
}


GRID: dict[str, AttackGrid] = {
    row.name: row
    for name, kind in KINDS.items()
    for row in (AttackGrid(f"{name}-{law}", *unit) for law, unit in product(kind.laws, kind.units))
}
