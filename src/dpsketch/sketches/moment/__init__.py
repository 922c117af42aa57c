"""Private frequency moments F_p = Σ (weight of a key)^p, for 0 < p ≤ 1.

A vector of ``size`` sums, each of the keys' weights times p-stable variates that a secret key yields. Such a sum is
p-stable with scale F_p, and what the secret hides is hidden by the variates themselves: the sketch is its own noise. A
floor, a stable draw of known scale, makes that enough whatever the data. The scale is estimated, rounded and
published; the vector and the secret are destroyed.

References
----------
Wang, Pinelis and Song, *Differentially private fractional frequency moments estimation with polylogarithmic space*
(ICLR 2022). Changed here: no sub-sampling (its Theorem 4 is false), the exact multiplicative sensitivity with a floor
instead of Theorem 1's bound and Theorem 6 (false), the exact privacy loss of all coordinates together instead of basic
composition, and the maximum-likelihood estimate. The published form is in
:mod:`~dpsketch.sketches.moment.as_published`.
"""

from dpsketch.laws.scales import ScaleEstimator
from dpsketch.sketches.moment.as_published import MomentSketchAsPublished
from dpsketch.sketches.moment.sketch import MomentProfile, MomentSketch, PrivateMoment, PrivateMomentProfile
from dpsketch.sketches.moment.spec import MomentProfileSpec, MomentSpec

__all__ = [
    "MomentProfile",
    "MomentProfileSpec",
    "MomentSketch",
    "MomentSketchAsPublished",
    "MomentSpec",
    "PrivateMoment",
    "PrivateMomentProfile",
    "ScaleEstimator",
]
