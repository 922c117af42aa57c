"""A histogram's mechanism as a file holds it, and what a reader checks: a file may have been written by anyone.

What is read is worked out anew from the laws that stand there. It is refused where these cost more than the guarantee
beside them promises, or are for another unit.
"""

from __future__ import annotations

import math
from typing import Any, assert_never

from dpsketch.errors import InvalidInput
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.numbers import real_number, whole_number
from dpsketch.privacy import ApproximateCost, Cost, GaussianCost, Guarantee, PureCost
from dpsketch.sketches.bounds import LARGEST
from dpsketch.sketches.histogram.choice import AutoBound
from dpsketch.sketches.histogram.joint import gaussian_excess
from dpsketch.sketches.histogram.mechanism import Mechanism, Reach, unfit
from dpsketch.sketches.histogram.rounds import LARGEST_CAP, WeightedRounds, rounds_delta
from dpsketch.sketches.histogram.thresholds import Threshold, delta_of
from dpsketch.truncated import TruncatedLaplace, law_from_json

__all__ = ["read_mechanism", "stored_mechanism"]

# What a sum of floats may pass a promise by.
_SLACK = 1e-9


def stored_mechanism(mechanism: Mechanism) -> dict[str, Any]:
    """Return the parameters as JSON-ready values; what is promised stands in the guarantee."""
    stated = {
        "finding": _finding_to_json(mechanism.finding),
        "noise": None if mechanism.noise is None else mechanism.noise.to_json(),
        "counted": mechanism.counted,
        "others": None if mechanism.others is None else mechanism.others.to_json(),
        "total": None if mechanism.total is None else mechanism.total.to_json(),
        "hashed": mechanism.hashed,
    }
    return stated if mechanism.bound is None else {**stated, "bound": mechanism.bound.to_json()}


def read_mechanism(value: dict[str, Any], promise: Guarantee, reach: Reach) -> Mechanism:
    """Rebuild from :func:`stored_mechanism`; refuse what the guarantee beside it, or the unit, does not cover."""
    finding = _finding_from_json(value["finding"], reach)
    noise, others, total = (
        None if value[name] is None else law_from_json(value[name]) for name in ("noise", "others", "total")
    )
    if isinstance(others, TruncatedLaplace) or not isinstance(total, DiscreteLaplace | None):
        raise unfit()
    bound = AutoBound.from_json(value["bound"], replace=reach.replace) if reach.chosen else None
    counts = finding.counts_keys if isinstance(finding, WeightedRounds) and noise is not None else reach.keys
    if bound is not None:
        counts = whole_number("counted", value["counted"], low=1, high=LARGEST)
    good = value["counted"] == counts and isinstance(value["hashed"], bool)
    match finding:
        case None:
            good = good and noise is not None and total is None
        case Threshold():
            good = good and noise in (None, finding.law) and others is None
        case WeightedRounds() if bound is not None:
            good = good and bound.laws == (finding.counts_law,) and finding.counts_keys == 1 and total is None
        case WeightedRounds():
            good = good and noise in (None, finding.counts_law) and total is None
        case never:
            assert_never(never)
    if bound is not None:
        good = good and not isinstance(finding, Threshold) and noise == bound.law(counts)
    if others is not None and isinstance(noise, RoundedGaussian):
        least = noise.sigma * math.sqrt(counts) * (1 - 1e-12)
        good = good and isinstance(others, RoundedGaussian) and others.sigma >= least
    elif others is not None:
        good = good and others == noise
    if not good:
        raise unfit()
    found = Mechanism(
        finding, noise, counts, others, total, reach, value["hashed"], promise.epsilon, promise.delta, promise.rho,
        bound,
    )  # fmt: skip
    if not _covered(found.calibration.costs, promise):
        raise unfit()
    return found


def _covered(costs: tuple[Cost, ...], promise: Guarantee) -> bool:
    """Say whether costs come to no more than is promised; a reader waits for it, so it is worked out at hand."""
    epsilon = delta = 0.0
    for cost in costs:
        match cost:
            case PureCost(own):
                epsilon += own
            case ApproximateCost(own, own_delta):
                epsilon, delta = epsilon + own, delta + own_delta
            case GaussianCost(mu):
                if promise.rho is not None and mu**2 / 2 > promise.rho * (1 + _SLACK):
                    return False
                delta += float(gaussian_excess(promise.epsilon, mu))
            case _:
                return False
    return epsilon <= promise.epsilon * (1 + _SLACK) and delta <= promise.delta * (1 + _SLACK)


def _finding_to_json(finding: Threshold | WeightedRounds | None) -> dict[str, Any] | None:
    match finding:
        case None:
            return None
        case Threshold():
            own: dict[str, Any] = {
                "law": finding.law.to_json(),
                "cutoff": finding.cutoff,
                "keys": finding.keys,
                "weight": finding.weight,
            }
        case WeightedRounds():
            own = {
                "laws": [law.to_json() for law in finding.laws],
                "cutoffs": list(finding.cutoffs),
                "cap": finding.cap,
                "counts_law": None if finding.counts_law is None else finding.counts_law.to_json(),
                "counts_keys": finding.counts_keys,
                "counts_weight": finding.counts_weight,
            }
        case never:
            assert_never(never)
    return {**own, "replace": finding.replace, "epsilon": finding.epsilon}


def _finding_from_json(value: dict[str, Any] | None, reach: Reach) -> Threshold | WeightedRounds | None:
    """Rebuild what finds names, with the δ that its noise and cutoffs come to for this unit."""
    if value is None:
        return None
    epsilon, replace = real_number("epsilon", value["epsilon"]), reach.replace
    if value["replace"] is not replace:
        raise unfit()
    if "law" in value:
        law = law_from_json(value["law"])
        cutoff, keys, weight = (whole_number(name, value[name], low=1) for name in ("cutoff", "keys", "weight"))
        if (keys, weight) != (reach.keys, reach.units):
            raise unfit()
        delta = delta_of(law, cutoff, epsilon=epsilon, keys=keys, weight=weight, replace=replace)
        return Threshold(law, cutoff, keys, weight, replace, epsilon, delta)
    laws = tuple(_gaussian(each) for each in value["laws"])
    cutoffs = tuple(whole_number("cutoff", each, low=1) for each in value["cutoffs"])
    counts_law = None if value["counts_law"] is None else _gaussian(value["counts_law"])
    cap = whole_number("cap", value["cap"], low=1, high=LARGEST_CAP)
    counts_keys = whole_number("counts_keys", value["counts_keys"], low=0, high=reach.keys)
    counts_weight = whole_number("counts_weight", value["counts_weight"], low=1)
    if not 1 <= len(laws) == len(cutoffs) <= 16 or (counts_law is not None and counts_weight != reach.units):
        raise unfit()
    delta = rounds_delta(
        laws, cutoffs, epsilon=epsilon, cap=cap, replace=replace,
        counts_law=counts_law, counts_keys=counts_keys, counts_weight=counts_weight,
    )  # fmt: skip
    return WeightedRounds(laws, cutoffs, cap, counts_law, counts_keys, counts_weight, replace, epsilon, delta)


def _gaussian(value: dict[str, Any]) -> RoundedGaussian:
    law = law_from_json(value)
    if not isinstance(law, RoundedGaussian):
        raise InvalidInput("this is no mechanism of a histogram: its rounds have Gaussian noise.")
    return law
