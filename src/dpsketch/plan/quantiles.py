"""Whether quantiles that are known beforehand are better named, or asked of a tree that answers all."""

from __future__ import annotations

import math
from fractions import Fraction

from dpsketch.plan.duration import seconds_for
from dpsketch.plan.values import Amount, Guess, Proposal, out_of_reach
from dpsketch.privacy import Budget, PureCost
from dpsketch.sketches.quantiles import QuantileSketch
from dpsketch.sketches.quantiles.spec import QuantileSpec
from dpsketch.sketches.ranges.spec import RangeSketchSpec

__all__ = ["naming_pays", "plan_quantiles", "tree_spec"]

# Fitted to 240 cases of data, size, budget and number of quantiles; docs/explanation/quantiles.md has them.
_TREE_SHARE = 0.45
_CROWD = 0.5


def tree_spec(spec: QuantileSpec, budget: Budget) -> RangeSketchSpec:
    """Return the tree over the same domain, with the levels that suit the budget."""
    level_bits = 4 if isinstance(budget.cost, PureCost) else 2
    return RangeSketchSpec(spec.bits, spec.unit, start=spec.start, level_bits=level_bits)


def naming_pays(spec: QuantileSpec, budget: Budget, records: float) -> bool:
    """Say whether named quantiles will have less error than a tree's, for a public guess at the number of records.

    They do if what is expected of them is below 0.45 of the tree's noise, and if between two quantiles there are enough
    records, ½·ln(cells)/ε of a level: with fewer, the mechanism loses its way among the values that nobody has.
    """
    law, tree = spec.laws(budget)[0], tree_spec(spec, budget)
    noise = tree.predict_rank_error(records=1.0, epsilon=budget.epsilon, delta=budget.delta, rho=budget.rho).noise
    scale = 1 / float(law.rate(Fraction(1, 2), whole=False))
    crowd = records * spec.weight_grid.one / (len(spec.quantiles) + 1)
    return spec.typical_error(law) < _TREE_SHARE * noise and crowd >= _CROWD * math.log(spec.cells.count) * scale


def plan_quantiles(amount: Amount, guess: Guess, spec: QuantileSpec, target_error: float | None) -> Proposal:
    """Say what named quantiles are worth; nothing is to be chosen."""
    error = spec.preview(**amount.budget).predicted_error
    if target_error is not None and error > target_error:
        raise out_of_reach(target_error, error, "whatever the size")
    return Proposal(
        kind="ranges",
        shape={
            "bits": spec.bits,
            **({"start": spec.start} if spec.start else {}),
            "quantiles": ",".join(map(_decimal, spec.quantiles)),
        },
        budget=amount.budget,
        error=error,
        error_of="the rank of a named quantile, about",
        memory=spec.memory,
        seconds=seconds_for(QuantileSketch.from_spec(spec), guess.records),
    )


def _decimal(share: Fraction) -> str:
    """Write a share as a decimal where it is one, and else as a fraction."""
    text = f"{float(share):.15g}"
    return text if Fraction(text) == share else str(share)
