"""Record every random draw of a release: a hook on the laws and mechanisms themselves, which tests install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from dpsketch.laws.distinct import Coins
from dpsketch.laws.ranks import RankDraws
from dpsketch.laws.sparse import SparseLaw
from dpsketch.laws.stable import Lift
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from second_opinion import Draw, Record


def _drawn(law: Any, data: tuple[Any, ...]) -> Draw:
    match law:
        case RoundedGaussian(sigma):
            return Draw("gaussian", {"sigma": sigma}, data[0])
        case DiscreteLaplace(epsilon, sensitivity):
            return Draw("laplace", {"scale": sensitivity / epsilon}, data[0])
        case Coins(threshold):
            return Draw("flips", {"threshold": threshold})
        case SparseLaw(projection=projection, survival=survival):
            numbers: dict[str, Any] = {"alpha": projection.alpha, "scale": projection.scale, "rule": None}
            if survival is not None:
                noise = survival.noise.sensitivity / survival.noise.epsilon
                numbers |= {"rule": survival.rule, "noise": noise, "cutoff": survival.cutoff}
            return Draw("sparse", numbers)
        case RankDraws(shares=shares, rates=rates, end_rates=ends, mass=mass):
            spans = [2 * max(share.numerator, share.denominator - share.numerator) for share in shares]
            loss = sum(span * (rate + 2 * end) for span, rate, end in zip(spans, rates, ends, strict=True))
            return Draw("ranks", {"mass": mass, "loss": float(loss)})
        case Lift(p, height):
            return Draw("floor", {"p": p, "height": height})
    raise AssertionError("something draws that has no row here")


@contextmanager
def recording() -> Iterator[list[Draw]]:
    """Note all draws inside the block; what a mechanism samples within itself is its own."""
    draws: list[Draw] = []
    within = 0

    def noting(whole: Any) -> Any:
        def draw(self: Any, *data: Any) -> Any:
            nonlocal within
            if not within:
                draws.append(_drawn(self, data))
            within += 1
            try:
                return whole(self, *data)
            finally:
                within -= 1

        return draw

    patches = [patch.object(law, "sample", noting(law.sample)) for law in (RoundedGaussian, DiscreteLaplace)]
    patches += [patch.object(law, "draw", noting(law.draw)) for law in (Coins, SparseLaw, RankDraws, Lift)]
    for each in patches:
        each.start()
    try:
        yield draws
    finally:
        for each in patches:
            each.stop()


def record_of(release: Any, draws: list[Draw], kind: str | None = None, **more: Any) -> Record:
    """What was drawn for a release, and what is public of it."""
    spec = release.public_spec() if hasattr(release, "public_spec") else release.spec.to_json()
    return Record(kind or release.kind, spec, draws, str(release.guarantee), more)
