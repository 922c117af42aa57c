"""A private centre of scaled features, for kernels that need an origin that means something.

The sum of the features and the number of records are released together as one vector of integers, on a grid of 2⁻¹⁰;
the number is weighted so that it has a fifth of the vector's squared length.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats
from dpsketch.privacy import Unit
from dpsketch.sketches.permit import Permit, Share
from dpsketch.sketches.specs import Sensitivity

__all__ = ["CENTRE", "centre_share_of", "centre_vector", "private_centre"]


CENTRE = "the features' sums"

_STEPS = 1 << 10


def _count_weight(features: int) -> int:
    return round(_STEPS * math.sqrt(features) / 2)


def centre_share_of(unit: Unit, features: int, part: float) -> Share:
    """Return the centre as a part of a release.

    Privacy
    -------
    Features lie in [−1, 1], so a point's vector has at most 2¹⁰ steps in each of them and the fixed weight of the
    count. A unit of m points adds m such vectors at most; a replaced one takes as many away.
    """
    weight = _count_weight(features)
    points = unit.max_keys * (2 if unit.neighbours == "replace" else 1)
    length = math.nextafter(math.sqrt(features * _STEPS**2 + weight**2), math.inf)
    return Share(CENTRE, Sensitivity(points * (features * _STEPS + weight), points * length), part)


def centre_vector(scaled: Floats) -> npt.NDArray[np.int64]:
    """Return the sums of the features in steps of the grid, and the weighted number of points. Sensitive."""
    sums = np.rint(_STEPS * np.clip(scaled, -1, 1)).astype(np.int64).sum(axis=0)
    return np.append(sums, _count_weight(scaled.shape[1]) * len(scaled))


def private_centre(scaled: Floats, permit: Permit) -> Floats:
    """Return the noisy mean of points in [−1, 1]^features.

    It is drawn towards 0 by as much as noise of that size would lengthen it (James and Stein, 1961): where there are
    too few records, the centre stays in the middle of the bounds.
    """
    features = scaled.shape[1]
    noisy, noise = permit.add_noise(centre_vector(scaled), CENTRE), permit.calibration.law(CENTRE)
    number = max(1.0, noisy[-1] / _count_weight(features))
    mean = noisy[:-1] / (_STEPS * number)
    variance = noise.variance / (_STEPS * number) ** 2
    square = float(np.sum(mean**2))
    kept = max(0.0, 1 - max(1, features - 2) * variance / square) if square > 0 else 0.0
    return np.asarray(np.clip(kept * mean, -1, 1))
