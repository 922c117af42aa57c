"""When the ALP mechanism pays, measured: ``python -m benchmarks.sparse_errors``.

Every line is a release by this library, asked about keys whose values are known. Data are fixed, so only the noise
differs from run to run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Integers
from dpsketch.privacy import per_record
from dpsketch.sketches.countsketch import CountSketch
from dpsketch.sketches.sparse.estimators import pure, stability
from dpsketch.sketches.sparse.sketch import PrivateSparseHistogram, SparseHistogram

__all__ = ["DOMAIN", "VALUES", "Line", "by_space", "by_value", "main"]

DOMAIN = 2**32
VALUES = (0, 10, 30, 60, 300)
OTHERS = 10_000


@dataclass(frozen=True, slots=True)
class Line:
    """The mean absolute errors of one release, by true value."""

    name: str
    errors: tuple[float, ...]
    bits: float | None = None

    def __str__(self) -> str:
        size = "" if self.bits is None else f"{self.bits:8.0f}"
        return f"{self.name:58}{size}" + "".join(f"{error:8.2f}" for error in self.errors)


class Data:
    """Keys asked about, ``probes`` for each of :data:`VALUES`, among other keys."""

    def __init__(self, probes: int, others: Integers) -> None:
        self.truth = np.repeat(np.array(VALUES), probes)
        self.keys = np.arange(len(self.truth))
        self.other_keys = np.arange(len(others)) + 2**31
        self.others = others

    def fill(self, sketch: SparseHistogram | CountSketch) -> None:
        """Add all keys to an empty sketch."""
        sketch.update(self.keys, counts=self.truth)
        sketch.update(self.other_keys, counts=self.others)

    def errors(self, estimates: npt.NDArray[np.float64]) -> tuple[float, ...]:
        """Return the mean absolute error at each of the values."""
        return tuple(float(line.mean()) for line in np.abs(estimates - self.truth).reshape(len(VALUES), -1))


def heavy_keys() -> Integers:
    """Return counts that fall as 1/i from a million: each reaches every column."""
    return 10**6 // np.arange(1, OTHERS + 1) + 300


def light_keys() -> Integers:
    """Return counts spread evenly over 1 … 100."""
    return np.arange(OTHERS) % 100 + 1


def by_value(probes: int = 2000) -> Iterator[Line]:
    """Compare ways to release a histogram at ε = 1 over 2³² keys, by the value of the key asked about."""
    # As in the paper's experiment, a bit collides with probability .1 in every column.
    for share in (0.5, 0.25):
        published = SparseHistogram(
            unit=per_record(),
            domain=DOMAIN,
            expected_keys=OTHERS + 600,  # the probes collide as well
            collisions=-math.log(0.9),
            threshold_share=share,
            alpha=3,
        )
        data = Data(max(1, min(probes, 200)), heavy_keys())
        found = np.mean([_published_errors(published, data) for _ in range(max(1, probes // 200))], axis=0)
        yield Line(f"threshold's ε = {share}, walk, α = 3, collisions .1", tuple(found))
    data = Data(probes, heavy_keys())
    for delta in (0.0, 1e-6):
        histogram = SparseHistogram(unit=per_record(), domain=DOMAIN, expected_keys=OTHERS + 4 * probes)
        data.fill(histogram)
        private = histogram.release(epsilon=1, delta=delta)
        words = f"δ = {delta:g}"
        yield Line(f"default, {words}", data.errors(private.estimate(data.keys).value))
        yield Line(f"default, {words}, median", data.errors(private.estimate(data.keys, estimator="median").value))
        yield Line(f"threshold alone, {words}", _threshold_errors(private, data))


def _published_errors(histogram: SparseHistogram, data: Data) -> tuple[float, ...]:
    fresh = histogram.empty_like()
    data.fill(fresh)
    return data.errors(fresh.release(epsilon=1, delta=0).estimate(data.keys, estimator="walk").value)


def _threshold_errors(private: PrivateSparseHistogram, data: Data) -> tuple[float, ...]:
    (table,), spec, promised = private.spec.tables(), private.spec, private.guarantee
    apart = table.between(spec.unit.neighbours)
    alone = (
        stability(promised.epsilon, promised.delta, apart, table.move)
        if promised.delta
        else pure(promised.epsilon, apart, spec.domain)
    )
    noisy = data.truth + alone.noise.sample(len(data.truth))
    # Of 2³² absent keys about one survives under the pure rule, and none under the other: no probe is among them.
    kept = (noisy >= alone.cutoff) & (data.truth > 0)
    return data.errors(np.where(kept, noisy, 0))


def by_space(probes: int = 1000) -> Iterator[Line]:
    """Compare with CountSketch in the same space (32-bit counters), among heavy and among light keys."""
    for name, others in (("heavy", heavy_keys()), ("light", light_keys())):
        data = Data(probes, others)
        for delta in (0.0, 1e-6):
            for collisions in (0.04, 0.1, 0.4):
                keys = OTHERS + 4 * probes
                histogram = SparseHistogram(unit=per_record(), domain=DOMAIN, expected_keys=keys, collisions=collisions)
                data.fill(histogram)
                private = histogram.release(epsilon=1, delta=delta)
                bits = private.law.projection.columns * private.law.projection.rows / keys
                words = f"{name} keys, δ = {delta:g}"
                yield Line(f"{words}: sparse histogram", data.errors(private.estimate(data.keys).value), bits)
                for rows in (3, 7):
                    counts = CountSketch(rows=rows, width=private.table.nbytes // 4 // rows, unit=per_record())
                    data.fill(counts)
                    errors = data.errors(counts.release(epsilon=1, delta=delta).estimate(data.keys).value)
                    yield Line(f"{words}: CountSketch, {rows} rows", errors, bits)


def main() -> None:
    """Print both comparisons."""
    print("Mean absolute error by true value, ε = 1, 2³² keys possible, one record protected.\n")
    print(f"{'':58}" + "".join(f"{value:8}" for value in VALUES))
    for line in by_value():
        print(line)
    print("\nThe same against CountSketch in the same space.\n")
    print(f"{'':58}{'bits/key':>8}" + "".join(f"{value:8}" for value in VALUES))
    for line in by_space():
        print(line)


if __name__ == "__main__":
    main()
