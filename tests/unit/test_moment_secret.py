"""A moment is of one secret, and its padding is in the ratio that it is charged for."""

from __future__ import annotations

import numpy as np
import pytest

import dpsketch as dps


def test_one_moment_secret_is_released_once() -> None:
    """Neither by merging the sketch into its partial, nor by a copy through its bytes."""
    sketch = dps.MomentSketch(p=0.5, size=20, unit=dps.per_record())
    sketch.update([1, 2, 3])
    partial = sketch.empty_like()
    with pytest.raises(dps.DpsketchError, match="Merge the partial into the sketch"):
        partial.merge(sketch)
    copied = dps.MomentSketch.from_sensitive_bytes(sketch.to_sensitive_bytes())
    sketch.release(epsilon=1.0, delta=1e-6)
    with pytest.raises(dps.DpsketchError, match="another copy"):
        copied.release(epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("p", [0.25, 0.5, 1.0])
def test_padding_of_a_turnstile_stream_is_in_the_ratio(p: float, neighbours: str) -> None:
    """Brute force over single keys and weights of both signs: F_p and its padding, which may move the same way."""
    weight, total, floor = 10.0, 10.0, 7.0
    unit = dps.per_record(max_weight=weight, neighbours=neighbours)
    spec = dps.MomentSketch(p=p, size=20, unit=unit, stream="turnstile", public_total=total).spec

    def padded(values: list[float]) -> float:
        return sum(abs(value) ** p for value in values) + max(0.0, total - sum(values)) ** p + floor

    steps = np.linspace(-weight, weight, 9)
    worst = 1.0
    for base in ([], [5.0], [12.0], [-3.0, 15.0]):
        for one in steps:
            for other in steps if neighbours == "replace" else [0.0]:
                pair = padded([*base, one]), padded([*base, other])
                worst = max(worst, pair[0] / pair[1], pair[1] / pair[0])
    assert worst <= spec.ratio(floor)
    if p == 1.0:
        assert worst > 1 + 0.9 * weight**p / (floor + total**p)
