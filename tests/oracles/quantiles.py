"""The recursive exponential mechanism, slowly: the probability of every answer, place by place, from the definition."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction

Cells = tuple[int, ...]
# From the share that is asked of a part, and whether the part is all the data, to how far scores may move apart.
Span = Callable[[Fraction, bool], Fraction]


def scores(masses: list[Fraction], share: Fraction, shift: Fraction) -> list[Fraction]:
    """How far each place's ranks are from the target; ``masses`` are those at the places, in order."""
    target = share * sum(masses, Fraction(0)) + shift
    found, below = [], Fraction(0)
    for mass in masses:
        found.append(max(Fraction(0), below - target, target - below - mass))
        below += mass
    return found


def one(masses: list[Fraction], share: Fraction, shift: Fraction, rate: float) -> list[float]:
    """The probability of every place."""
    away = scores(masses, share, shift)
    nearest = min(away)
    weights = [math.exp(-rate * float(each - nearest)) for each in away]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def law(
    counts: list[int], quantiles: list[Fraction], epsilon: float, weight: int, span: Span, tie_bits: int, shift: int = 0
) -> dict[Cells, float]:
    """The probability of every answer, as cells."""
    places = 1 << tie_bits
    masses = [Fraction(count, places) for count in counts for _ in range(places)]

    def answers(first: int, part: list[Fraction], asked: list[tuple[Fraction, Fraction]], whole: bool) -> dict:
        """Of a part that begins at a place, with a mass at each of its places."""
        if not asked:
            return {(): 1.0}
        middle = len(asked) // 2
        share, moved = asked[middle]
        below = [(t / share, u - t / share * moved) for t, u in asked[:middle]]
        above = [((t - share) / (1 - share), u - (1 - t) / (1 - share) * moved) for t, u in asked[middle + 1 :]]
        found: dict[Cells, float] = defaultdict(float)
        for place, chance in enumerate(one(part, share, moved, epsilon / float(span(share, whole) * weight))):
            if chance < 1e-14:
                continue
            # The place itself can be an answer on either side; what lies at it goes to the right.
            left = answers(first, [*part[:place], Fraction(0)], below, False)
            right = answers(first + place, part[place:], above, False)
            for low, p in left.items():
                for high, q in right.items():
                    found[(*low, (first + place) // places, *high)] += chance * p * q
        return dict(found)

    return answers(0, masses, [(share, Fraction(shift)) for share in quantiles], True)
