"""How names are found, as a release's file has it: written down, and rebuilt with nothing taken on trust."""

from __future__ import annotations

from typing import Any, assert_never

from dpsketch.errors import InvalidInput
from dpsketch.noise import RoundedGaussian
from dpsketch.numbers import real_number, whole_number
from dpsketch.sketches.histogram.rounds import LARGEST_CAP, WeightedRounds, rounds_delta
from dpsketch.sketches.histogram.thresholds import Threshold, delta_of
from dpsketch.truncated import law_from_json

__all__ = ["finding_from_json", "finding_to_json", "unfit"]


def unfit() -> InvalidInput:
    """Return the refusal of parts that are no mechanism together."""
    return InvalidInput("this is no mechanism of a histogram: its parts do not fit each other or its guarantee.")


def finding_to_json(finding: Threshold | WeightedRounds | None) -> dict[str, Any] | None:
    """Return what finds names as JSON-ready values."""
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


def finding_from_json(
    value: dict[str, Any] | None, most_keys: int, most_units: int, replace: bool
) -> Threshold | WeightedRounds | None:
    """Rebuild what finds names, with the δ that its noise and cutoffs come to for a unit of so many keys and units."""
    if value is None:
        return None
    epsilon = real_number("epsilon", value["epsilon"])
    if value["replace"] is not replace:
        raise unfit()
    if "law" in value:
        law = law_from_json(value["law"])
        cutoff, keys, weight = (whole_number(name, value[name], low=1) for name in ("cutoff", "keys", "weight"))
        if (keys, weight) != (most_keys, most_units):
            raise unfit()
        delta = delta_of(law, cutoff, epsilon=epsilon, keys=keys, weight=weight, replace=replace)
        return Threshold(law, cutoff, keys, weight, replace, epsilon, delta)
    laws = tuple(_gaussian(each) for each in value["laws"])
    cutoffs = tuple(whole_number("cutoff", each, low=1) for each in value["cutoffs"])
    counts_law = None if value["counts_law"] is None else _gaussian(value["counts_law"])
    cap = whole_number("cap", value["cap"], low=1, high=LARGEST_CAP)
    counts_keys = whole_number("counts_keys", value["counts_keys"], low=0, high=most_keys)
    counts_weight = whole_number("counts_weight", value["counts_weight"], low=1)
    if not 1 <= len(laws) == len(cutoffs) <= 16 or (counts_law is not None and counts_weight != most_units):
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
