"""What each kind of release answers, and how it is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpsketch import plots
from dpsketch.errors import InvalidInput
from dpsketch.estimates import Estimates
from dpsketch.sketches.density import PrivateDensity
from dpsketch.sketches.distinct import PrivateDistinct, PrivateDistinctBitmap
from dpsketch.sketches.moment import PrivateMoment, PrivateMomentProfile
from dpsketch.sketches.ranges import PrivateRanges

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["answer", "picture", "typed_keys"]


def answer(release: Any, asked: list[str], confidence: float, estimator: str | None) -> Estimates:
    """Answer what was asked, by the kind of release."""
    match release:
        case PrivateMoment() | PrivateMomentProfile() | PrivateDistinct() | PrivateDistinctBitmap():
            if asked:
                raise InvalidInput("this release is one statement about the whole stream: ask it without keys.")
            return _statement(release, confidence)
        case _ if not asked:
            raise InvalidInput("name at least one key, or give --keys-from FILE.")
        case PrivateDensity():
            found = release.density([_point(text, release.spec.dim) for text in asked], confidence=confidence)
            return Estimates(asked, found.value, found.low, found.high, confidence)
        case PrivateRanges():
            return _ranges(release, asked, confidence)
        case _:
            chosen = {} if estimator is None else {"estimator": estimator}
            found = release.estimate(typed_keys(asked, release), confidence=confidence, **chosen)
            if not isinstance(found, Estimates):
                raise InvalidInput("this release answers no questions about keys.")
            return found


def picture(release: Any, candidates: list[Any] | None, n: int) -> Figure:
    """Draw a release by its kind."""
    words = f"ε = {release.guarantee.epsilon:.4g}, δ = {release.guarantee.delta:.3g}"
    match release:
        case PrivateDensity() if release.spec.dim == 1:
            curve = release.curve()
            return plots.curve(curve.x, curve.value, curve.low, curve.high, curve.name or "value", "density", words)
        case PrivateDensity() if release.spec.dim == 2:
            grid = release.grid()
            return plots.heat_map(grid.value, grid.bounds, grid.names or ("first", "second"), words)
        case PrivateDensity():
            raise InvalidInput("a density of more than two columns has no picture.")
        case PrivateMomentProfile():
            return _profile(release, words)
        case PrivateMoment() | PrivateDistinct() | PrivateDistinctBitmap():
            return plots.bars(_statement(release, 0.95), words)
        case PrivateRanges():
            return release.plot()
        case _:
            figure: Figure = release.plot(candidates=candidates, n=n)
            return figure


def typed_keys(keys: list[str], release: Any) -> list[Any]:
    """Read keys by the release's spec: integers where it counts integers."""
    if getattr(getattr(release, "spec", None), "key_type", None) != "int":
        return list(keys)
    numbers = [_whole(key) for key in keys]
    if None in numbers:
        raise InvalidInput("this release counts integer keys, and one of the keys asked is not an integer.")
    return numbers


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _statement(release: Any, confidence: float) -> Estimates:
    if isinstance(release, PrivateMomentProfile):
        found = release.curve(confidence=confidence)
        return Estimates([f"F_{p:g}" for p in found.key], found.value, found.low, found.high, confidence)
    name = f"F_{release.p:g}" if isinstance(release, PrivateMoment) else "distinct keys"
    low, high = release.interval(confidence)
    return Estimates([name], np.array([release.value]), np.array([low]), np.array([high]), confidence)


def _profile(release: PrivateMomentProfile, words: str) -> Figure:
    found = release.curve()
    order = np.argsort(found.key)
    p = np.asarray(found.key, dtype=np.float64)[order]
    return plots.curve(p, found.value[order], found.low[order], found.high[order], "p", "F_p", words, log=True)


def _point(text: str, dim: int) -> list[float]:
    try:
        point = [float(part) for part in text.split(",")]
    except ValueError:
        point = []
    if len(point) != dim:
        raise InvalidInput(f"a point of this release is {dim} numbers with commas between them, as in 1.5,2.")
    return point


def _ranges(release: PrivateRanges, asked: list[str], confidence: float) -> Estimates:
    """Answer ranges (low:high) by counts and percentages (50%) by quantiles."""
    found = [_one_range(release, text, confidence) for text in asked]
    value, low, high = (np.array([getattr(one, side) for one in found], float) for side in ("value", "low", "high"))
    return Estimates(asked, value, low, high, confidence)


def _one_range(release: PrivateRanges, text: str, confidence: float) -> Any:
    try:
        if text.endswith("%"):
            return release.quantile(float(text[:-1]) / 100, confidence=confidence)
        low, colon, high = text.partition(":")
        if colon:
            return release.range(int(low), int(high), confidence=confidence)
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
    raise InvalidInput("ask ranges as low:high (whole numbers) and quantiles as 50%.")
