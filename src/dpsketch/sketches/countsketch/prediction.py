"""How accurate a release will be, found out by rehearsing it on a guess at the data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import countsketch as kernels
from dpsketch.hashing import fingerprint, row_keys
from dpsketch.privacy import Budget
from dpsketch.sketches.countsketch.decoding import joint_decode
from dpsketch.sketches.countsketch.intervals import half_width
from dpsketch.sketches.countsketch.location import choose_location, pseudo_cells, root_mean_square

if TYPE_CHECKING:
    from dpsketch.sketches.countsketch.spec import CountSketchSpec

__all__ = ["CountPrediction", "rehearse"]


@dataclass(frozen=True, slots=True)
class CountPrediction:
    """What estimates from a release are expected to be worth.

    Attributes
    ----------
    error : float
        Root mean square error of :meth:`~dpsketch.PrivateCountSketch.estimate`.
    half_width : float
        Half-width of its 95% intervals.
    decoded_error : float
        Root mean square error of :meth:`~dpsketch.PrivateCountSketch.decode` over all keys.
    noise_scale : float
        Standard deviation of the noise in one counter.
    memory : int
        Bytes of the table while it counts.
    """

    error: float
    half_width: float
    decoded_error: float
    noise_scale: float
    memory: int


def rehearse(spec: CountSketchSpec, counts: npt.NDArray[np.float64], budget: Budget) -> CountPrediction:
    """Build the table that the guessed counts would make, add noise of the very law, and read the errors off it.

    Which keys have which counts does not matter to the law of the errors, so the guess needs none.
    """
    noise = spec.laws(budget)[0].noise
    keys = row_keys(spec.seed, spec.rows)
    prints = fingerprint(np.arange(len(counts))).fingerprints
    units = np.rint(counts / spec.grid).astype(np.int64)
    table = noise.sample(spec.rows * spec.width).reshape(spec.rows, spec.width)
    kernels.add_weighted(table, prints, keys, units)
    scale = math.sqrt(noise.variance)
    location = choose_location(table, scale)
    decoded = joint_decode(table, prints, keys, scale)
    return CountPrediction(
        error=spec.grid * root_mean_square(location(pseudo_cells(table))),
        half_width=spec.grid * half_width(table, location, 0.95),
        decoded_error=spec.grid * root_mean_square(decoded.shown("limited") - units),
        noise_scale=spec.grid * scale,
        memory=spec.memory,
    )
