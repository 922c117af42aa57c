"""What each kind of release answers, and how it is drawn."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsketch import plots
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KIND_OF_KEY, KeyType
from dpsketch.kinds import KINDS
from dpsketch.local import Collector, Snapshot
from dpsketch.results import Estimates
from dpsketch.sketches.countsketch import PrivateCountSketch
from dpsketch.sketches.density import PrivateDensity
from dpsketch.sketches.distinct import PrivateDistinct, PrivateDistinctBitmap
from dpsketch.sketches.moment import PrivateMoment, PrivateMomentProfile
from dpsketch.sketches.ranges import PrivateRanges
from dpsketch.sketches.sparse import PrivateSparseHistogram
from dpsketch.sketches.specs import fingerprint_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["answer", "describe", "picture", "takes_either", "top", "typed_keys"]


def answer(
    release: Any, asked: list[Any], confidence: float, estimator: str | None, key_type: KeyType | None = None
) -> Estimates:
    """Answer what was asked, by the kind of release; ``key_type`` says how keys are read where the release does not."""
    return replace(_answer(release, asked, confidence, estimator, key_type), counts=release.guarantee.unit.counts)


def _answer(
    release: Any, asked: list[Any], confidence: float, estimator: str | None, key_type: KeyType | None
) -> Estimates:
    match release:
        case PrivateMoment() | PrivateMomentProfile() | PrivateDistinct() | PrivateDistinctBitmap():
            if asked:
                raise InvalidInput("this release is one statement about the whole stream: ask it without keys.")
            return _statement(release, confidence)
        case _ if not asked:
            raise InvalidInput("name at least one key to ask about.")
        case PrivateDensity():
            found = release.density([_point(text, release.spec.dim) for text in asked], confidence=confidence)
            return Estimates(asked, found.value, found.low, found.high, confidence)
        case PrivateRanges():
            return _ranges(release, asked, confidence)
        case Collector() | Snapshot() if estimator is not None:
            raise InvalidInput("local reports are estimated in one way: leave the estimator out.")
        case _:
            chosen = {} if estimator is None else {"estimator": estimator}
            found = release.estimate(typed_keys(asked, release, key_type), confidence=confidence, **chosen)
            if not isinstance(found, Estimates):
                raise InvalidInput("this release answers no questions about keys.")
            return found


def top(
    release: Any, n: int, candidates: list[Any] | None, confidence: float, key_type: KeyType | None = None
) -> Estimates:
    """List the most frequent keys, with intervals that hold for all of them at once."""
    if not hasattr(release, "top"):
        raise InvalidInput("this release has no keys to list; `dpsketch inspect` says what it answers.")
    if candidates is None and isinstance(release, PrivateCountSketch | Collector | Snapshot):
        raise InvalidInput(
            "this release knows counts, not keys. Give a list of candidates (--candidates FILE, one key a line; a "
            "public list costs no privacy), or make a release that finds keys by itself: dpsketch run heavy …"
        )
    listed = None if candidates is None else typed_keys(candidates, release, key_type)
    found: Estimates = release.top(n, candidates=listed, confidence=confidence)
    return replace(found, counts=release.guarantee.unit.counts)


def describe(release: Any, kind: str, size: int) -> dict[str, Any]:
    """Say what a release is and what it promises: everything but its counters. ``size`` is the file's, in bytes."""
    charge = getattr(release, "charge", None)
    named = {"spec_fingerprint": fingerprint_of(release.spec)} if hasattr(release, "spec") else {}
    return {
        "kind": kind,
        "sensitive": False,
        "answers": KINDS[kind].answers,
        "counts": release.guarantee.unit.counts,
        "spec": release.to_document().header.get("spec"),
        **named,
        "bytes": size,
        "guarantee": release.guarantee.to_json(),
        "charge": None if charge is None else charge.to_json(),
        **(release.facts() if hasattr(release, "facts") else {}),
    }


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


def takes_either(release: Any) -> bool:
    """Say whether a release was made without a key type, so that a question about keys brings its own."""
    return isinstance(release, PrivateCountSketch | PrivateSparseHistogram) and release.spec.key_type is None


def typed_keys(keys: list[Any], release: Any, key_type: KeyType | None = None) -> list[Any]:
    """Read keys by the release's spec, or else by ``key_type``: as integers, as text, or as they are if neither says.

    A release that was made from lists has no key type, since their values are no schema: 5 then asks for the integer,
    and "5" for the text.
    """
    spec = release.protocol if isinstance(release, Collector | Snapshot) else getattr(release, "spec", None)
    stated: KeyType | None = getattr(spec, "key_type", None)
    if stated is not None and key_type is not None and stated != key_type:
        raise InvalidInput(f"this release counts {KIND_OF_KEY[stated]} keys: leave the key type out.")
    if (stated or key_type) != "int":
        return [str(key) for key in keys] if key_type == "text" else list(keys)
    numbers = [_whole(key) for key in keys]
    if None in numbers:
        raise InvalidInput("the keys of this question are integers, and one of those asked is not.")
    return numbers


def _whole(text: str | int) -> int | None:
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
    """Answer ranges (low:high) by counts and percentages (50%) by quantiles: all of each in one search."""
    wanted = [_range_or_share(text) for text in asked]
    pairs = [one for one in wanted if isinstance(one, tuple)]
    counts = release.ranges([low for low, _ in pairs], [high for _, high in pairs], confidence=confidence)
    counted = zip(counts.value, counts.low, counts.high, strict=True)
    quantiles = iter(release.quantiles([one for one in wanted if isinstance(one, float)], confidence=confidence))
    found = np.empty((len(asked), 3))
    for row, one in enumerate(wanted):
        if isinstance(one, tuple):
            found[row] = next(counted)
        else:
            quantile = next(quantiles)
            found[row] = quantile.value, quantile.low, quantile.high
    return Estimates(asked, found[:, 0], found[:, 1], found[:, 2], confidence)


def _range_or_share(text: str) -> tuple[int, int] | float:
    """Read low:high, or a percentage as a share."""
    try:
        if text.endswith("%"):
            return float(text[:-1]) / 100
        low, colon, high = text.partition(":")
        if colon:
            return int(low), int(high)
    except ValueError:
        pass
    raise InvalidInput("ask ranges as low:high (whole numbers) and quantiles as 50%.")
