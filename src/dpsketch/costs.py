"""What a release costs, as values that a ledger composes: one class for each way in which a mechanism is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_never

from dpsketch.errors import InvalidInput
from dpsketch.numbers import hold_real, hold_whole

__all__ = [
    "ApproximateCost",
    "Cost",
    "GaussianCost",
    "MomentCost",
    "PureCost",
    "ZcdpCost",
    "cost_from_json",
    "cost_to_json",
]


@dataclass(frozen=True, slots=True)
class PureCost:
    """A mechanism whose privacy loss never exceeds ``epsilon`` (Laplace, randomised response, ALP)."""

    epsilon: float

    def __post_init__(self) -> None:
        hold_real(self, "epsilon")


@dataclass(frozen=True, slots=True)
class GaussianCost:
    """A Gaussian mechanism; ``mu`` is its L2 sensitivity over its standard deviation."""

    mu: float

    def __post_init__(self) -> None:
        hold_real(self, "mu")


@dataclass(frozen=True, slots=True)
class ZcdpCost:
    """Any mechanism known only to satisfy ``rho``-zero-concentrated differential privacy."""

    rho: float

    def __post_init__(self) -> None:
        hold_real(self, "rho")


@dataclass(frozen=True, slots=True)
class ApproximateCost:
    """Any mechanism known only to satisfy (``epsilon``, ``delta``)-differential privacy."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        hold_real(self, "epsilon", "delta")


@dataclass(frozen=True, slots=True)
class MomentCost:
    """A moment sketch: ``size`` coordinates of a ``p``-stable law whose scale changes by at most ``ratio``."""

    p: float
    size: int
    ratio: float

    def __post_init__(self) -> None:
        hold_real(self, "p", "ratio")
        hold_whole(self, "size")


Cost = PureCost | GaussianCost | ZcdpCost | ApproximateCost | MomentCost

_COST_NAMES: dict[str, type[PureCost | GaussianCost | ZcdpCost | ApproximateCost | MomentCost]] = {
    "pure": PureCost,
    "gaussian": GaussianCost,
    "zcdp": ZcdpCost,
    "approximate": ApproximateCost,
    "moment": MomentCost,
}


def cost_to_json(cost: Cost) -> dict[str, Any]:
    """Return a cost as JSON-ready values, its kind under ``"kind"``."""
    match cost:
        case PureCost(epsilon):
            return {"kind": "pure", "epsilon": epsilon}
        case GaussianCost(mu):
            return {"kind": "gaussian", "mu": mu}
        case ZcdpCost(rho):
            return {"kind": "zcdp", "rho": rho}
        case ApproximateCost(epsilon, delta):
            return {"kind": "approximate", "epsilon": epsilon, "delta": delta}
        case MomentCost(p, size, ratio):
            return {"kind": "moment", "p": p, "size": size, "ratio": ratio}
        case _:
            assert_never(cost)


def cost_from_json(value: dict[str, Any]) -> Cost:
    """Rebuild a cost from :func:`cost_to_json`."""
    fields = dict(value)
    kind = fields.pop("kind", None)
    if kind not in _COST_NAMES:
        raise InvalidInput(f"unknown kind of privacy cost: {kind!r}.")
    return _COST_NAMES[kind](**fields)
