"""How a budget is shared among the parts of a table: names, bounds, head counts and columns.

A law computes what it costs by itself, so that nothing here can make a guarantee false.

**Gaussian noise.** Shares are of μ². Names get 27%, or half. Each shape and the number of a user's groups get 2%
where a bound is chosen from it, and 0.5% where it only tells how much a stated bound cuts. The rest goes to the head
count in proportion to √(1 + linear columns), to each linear column in proportion to 1, and to a tree of L levels in
proportion to √(L/3), all times the root of the column's weight: that minimises the sum of the variances, in units of
half widths, for a mean halfway between the middle and a bound. Under replace the head count gets at least half, so that
twice the squares are enough.

**Laplace noise.** Shares are of ε. Each shape gets 2% or 0.5%, the quantiles 40% of the rest, of which 8% draws
the ends of their intervals. The last row gets 5% if there are no quantiles, since no record pays for both.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from dpsketch import accounting
from dpsketch.laws.centred import CentredTable
from dpsketch.laws.corners import CornerTable, cells_table, corner_steps, tail
from dpsketch.laws.groups import SCALE, Measure
from dpsketch.laws.ranks import RankDraws, shift_for
from dpsketch.laws.rounds import WEIGHT_ONE, rounds_delta
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.privacy import ApproximateCost, Budget, PureCost, ZcdpCost
from dpsketch.sketches.histogram.calibration import largest_leak, least_cutoff, least_whole

if TYPE_CHECKING:
    from dpsketch.sketches.table.spec import TableSpec

__all__ = ["CAP", "CONFIDENCE", "Names", "centred_table", "column_shares", "corner_table"]

Names = Literal["less", "more"]

# No unit gives weight to more groups than this in a round: more finds fewer.
CAP = 100
# The intervals of drawn quantiles hold with this confidence.
CONFIDENCE = 0.95
_NAMES = {"less": 0.27, "more": 0.5}
# Of a shape from which bounds are chosen, and of one that only tells how much stated bounds cut.
_CHOSEN, _TOLD = 0.02, 0.005
_ROUNDS = (0.12, 0.88)
# The part of δ for names; leak and shift add up, so that the noise grows little and cutoffs fall.
_LEAK = 0.25
_OTHERS, _QUANTILES, _ENDS = 0.05, 0.4, 0.08
# A hair more noise outweighs every rounding here and in the law's own sum.
_ROOM = 1 + 1e-5
_LESS = 1 - 1e-9
_SLOTS = 1024
_MASS = 1 << 16


def centred_table(spec: TableSpec, budget: Budget, *, listed: int | None, names: Names) -> CentredTable:
    """Return the law of a table with Gaussian noise that uses the budget up, for a public list of so many groups."""
    found, rows = listed is None, None if listed is None else listed + 1
    unit, measures, replaced = spec.unit, spec.measures(), spec.unit.neighbours == "replace"
    match budget.cost:
        case ApproximateCost(epsilon, delta):
            mu = accounting.gaussian_mu(epsilon, delta * (1 - _LEAK) if found else delta)
        case ZcdpCost(rho):
            mu = accounting.zcdp_mu(rho)
        case PureCost():
            raise AssertionError("pure budgets have corners")
    squares = (mu / _ROOM) ** 2 / (2 if replaced else 1)  # what one unit may spend
    shapes = [_CHOSEN if measure.stated is None else _TOLD for measure in measures]
    by_user = unit.level == "user"
    held = (_CHOSEN if unit.chosen else _TOLD) if by_user else 0.0
    rounds = _NAMES[names] if found else 0.0
    columns = squares * (1 - rounds - held - math.fsum(shapes))
    shares = column_shares(spec, measures, least=0.5 if replaced else 0.0)
    noise = [
        RoundedGaussian(SCALE * math.sqrt(max(measure.levels, 1) / (columns * share)))
        for measure, share in zip(measures, shares[1:], strict=True)
    ]
    law = CentredTable(
        unit.neighbours,
        unit.max_keys,
        unit.chosen,
        measures,
        RoundedGaussian(1 / math.sqrt(columns * shares[0])),
        tuple(noise),
        tuple(RoundedGaussian(1 / math.sqrt(squares * share)) for share in shapes),
        RoundedGaussian(1 / math.sqrt(squares * held)) if by_user else None,
        rows=rows,
    )
    if rows is not None and by_user and not (replaced or unit.chosen):
        # A unit moves R cells by 1, and the number of units by 1, with the least error at √R : 1.
        root = math.sqrt(rows)
        parts = columns * shares[0] * root / (root + 1), columns * shares[0] / (root + 1)
        users, persons = RoundedGaussian(math.sqrt(rows / parts[0])), RoundedGaussian(1 / math.sqrt(parts[1]))
        centred = replace(law, users=users, persons=persons)
        law = min(law, centred, key=lambda each: each.head_error)
    if not found or not isinstance(budget.cost, ApproximateCost):
        return law
    return _with_names(law, budget.cost, squares * rounds, min(unit.max_keys, CAP))


def column_shares(spec: TableSpec, measures: tuple[Measure, ...], *, least: float = 0.0) -> list[float]:
    """Return the shares of the head count and of each column."""
    linear = sum(measure.kind != "quantiles" for measure in measures)
    found = [math.sqrt((1 + linear) * spec.weight_of(None))]
    found += [math.sqrt(spec.weight_of(each) * (each.levels / 3 if each.levels else 1.0)) for each in measures]
    shares = [each / math.fsum(found) for each in found]
    if shares[0] >= least or len(shares) == 1:
        return shares
    return [least, *(share * (1 - least) / (1 - shares[0]) for share in shares[1:])]


def _with_names(law: CentredTable, cost: ApproximateCost, squares: float, cap: int) -> CentredTable:
    """Return the law with rounds that find names, and the least cutoffs that then fit δ."""
    epsilon, delta, replaced = cost.epsilon, cost.delta * _LESS, law.neighbours == "replace"
    parts = _ROUNDS if epsilon >= 1 and cap > 1 else (1.0,)
    noises = tuple(RoundedGaussian(WEIGHT_ONE / math.sqrt(squares * part)) for part in parts)
    rest = law.largest_squares / (2 if replaced else 1)
    if len(parts) == 1:

        def fits(cutoff: int) -> bool:
            facts = {"epsilon": epsilon, "cap": cap, "replace": replaced, "counts": rest}
            return rounds_delta(noises, (cutoff,), **facts) <= delta

        cutoffs: tuple[int, ...] = (least_whole(fits, WEIGHT_ONE, step=int(4 * noises[0].sigma)),)
    else:
        shifts = math.fsum((WEIGHT_ONE / noise.sigma) ** 2 for noise in noises) + rest
        leak = largest_leak(epsilon, delta, shifts, replace=replaced)
        cutoffs = tuple(least_cutoff(noise, leak * part, cap) for noise, part in zip(noises, parts, strict=True))
    return law.with_names(noises, cutoffs, cap, epsilon)


def corner_table(spec: TableSpec, budget: Budget, *, listed: int | None) -> CornerTable:
    """Return the law of a table with Laplace noise that uses the budget up, for a public list of so many groups."""
    found, rows = listed is None, None if listed is None else listed + 1
    unit, twice = spec.unit, 2 if spec.unit.neighbours == "replace" else 1
    cost = budget.cost
    assert not isinstance(cost, ZcdpCost)
    linear = tuple(measure for measure in spec.measures() if measure.kind != "quantiles")
    quantiles = tuple(measure for measure in spec.measures() if measure.kind == "quantiles")
    by_user = unit.level == "user"
    shapes: dict[object, float] = {}
    for measure in (*linear, *quantiles):
        share = _CHOSEN if measure.stated is None else _TOLD
        key = measure if by_user else measure.value
        shapes[key] = max(share, shapes.get(key, 0.0))
    rest = 1 - math.fsum(shapes.values())
    drawn = _QUANTILES * rest if quantiles else 0.0
    others = max(drawn, _OTHERS * rest) if found else drawn
    epsilon = cost.epsilon * _LESS
    keys = unit.max_keys if rows is None else min(unit.max_keys, rows)
    distance = cells_table(keys, len(linear)).between(unit.neighbours).l1
    cells = DiscreteLaplace(epsilon * (rest - others), distance)
    draws = []
    for measure in quantiles:
        weights = [spec.weight_of(each) for each in quantiles]
        share = drawn * spec.weight_of(measure) / math.fsum(weights)
        draws.append(_draws(spec.shares_of(measure), epsilon * share / (twice * keys), by_user=by_user))
    law = CornerTable(
        unit.neighbours,
        by_user,
        unit.max_keys,
        linear,
        quantiles,
        cells,
        tuple(DiscreteLaplace(epsilon * share, twice) for share in shapes.values()),
        tuple(draws),
        rows=rows,
    )
    if not found:
        return law
    count, corner = 1 << len(linear), corner_steps(len(linear)) ** len(linear)
    assert isinstance(cost, ApproximateCost)
    # A name may show no oftener than ε hides: the law's δ is 1 beyond that.
    delta = min(cost.delta, -math.expm1(-epsilon * (rest - others) / twice)) * _LESS
    cutoff = least_whole(lambda t: tail(cells, count, t - corner) <= delta, corner + 1, step=corner)
    return law.with_names(cutoff, DiscreteLaplace(epsilon * others, distance))


def _draws(shares: tuple[float, ...], epsilon: float, *, by_user: bool) -> RankDraws:
    """Return how quantiles are drawn at this ε in all; a part of it goes to the ends of their intervals."""
    fractions = tuple(Fraction(repr(share)) for share in shares)
    mass = _MASS if by_user else 1
    rates, ends, shifts = [], [], []
    for share in fractions:
        span = 2 * max(share.numerator, share.denominator - share.numerator) * mass
        single = Fraction(epsilon) / (len(fractions) * span)
        rates.append(_short(single * (1 - Fraction(repr(_ENDS)))))
        ends.append(_short(single * Fraction(repr(_ENDS)) / 2))
        shifts.append(shift_for(_SLOTS, share, ends[-1], (1 - CONFIDENCE) / 2))
    return RankDraws(fractions, tuple(rates), tuple(ends), tuple(shifts), _SLOTS, mass)


def _short(rate: Fraction) -> Fraction:
    """Return nearly the same rate, rounded down to a fraction of few digits, with which exact draws are fast."""
    bits = max(0, 24 - math.floor(math.log2(float(rate))))
    return Fraction(math.floor(rate * (1 << bits)), 1 << bits)
