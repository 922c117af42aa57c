"""What a release showed, and how records reach a kind: what all kinds of the table share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsketch import accounting
from dpsketch.audit.mechanism import parts_of
from dpsketch.privacy import Guarantee, Unit

__all__ = ["SEED", "Records", "Release", "Shown", "columns_of", "mu_of", "released", "shown"]

# One record: its key (None for a null), whose it is, and its weight.
Records = list[tuple[int | None, str, float]]
# How many numbers have noise of which standard deviation, part after part.
Spreads = list[tuple[int, float]]

SEED = 11


class Shown(NamedTuple):
    """What a release showed: all numbers, the sentence beside them, and the noise that it states for each part."""

    numbers: npt.NDArray[Any]
    promise: Guarantee
    spreads: Spreads


# Publishes for a budget, given as the arguments of ``release``.
Release = Callable[[Any], Shown]


def columns_of(unit: Unit, records: Records, *, weighted: bool = True) -> tuple[list[int | None], dict[str, Any]]:
    """Return the keys of records, and what ``update`` takes beside them."""
    keys = [key for key, _, _ in records]
    given: dict[str, Any] = {"users": [user for _, user, _ in records]} if unit.level == "user" else {}
    if weighted:
        given["weights"] = [weight for _, _, weight in records]
    return keys, given


def shown(promise: Guarantee, *parts: tuple[Any, Any]) -> Shown:
    """Join parts, each of which is an array and its law."""
    numbers = np.concatenate([np.ravel(part) for part, _ in parts])
    return Shown(numbers, promise, [(np.size(part), math.sqrt(law.variance)) for part, law in parts if np.size(part)])


def released(sketch: Any, parts: Callable[[Any], Iterable[tuple[Any, Any]]] = parts_of, **more: Any) -> Release:
    """Return what publishes a filled sketch, with ``more`` arguments of its release, and shows the parts of each."""

    def release(asked: Any) -> Shown:
        made = sketch.release(**asked, **more)
        return shown(made.guarantee, *parts(made))

    return release


def mu_of(asked: Any) -> float:
    """Return the μ of the Gaussian mechanism that a budget asks for."""
    return math.sqrt(2 * asked["rho"]) if "rho" in asked else float(accounting.gaussian_mu(**asked))
