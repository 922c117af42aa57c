"""Attacks on streams of days, each of which once went through."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.sketches.continual.windows import joined

RECORD = dps.per_record()
TERMS: dict[str, Any] = {"days": 365, "epsilon": 1.0, "delta": 1e-6}


def ranges(bits: int = 6, **terms: Any) -> dps.ContinualSketch:
    return dps.ContinualSketch(dps.RangeSketch(bits=bits, unit=RECORD), **{**TERMS, **terms})


def counts() -> dps.ContinualSketch:
    return dps.ContinualCountSketch(rows=3, width=16, unit=RECORD, key_type="int", **TERMS)


def test_a_day_that_passes_64_bits_when_it_is_scaled_is_held_and_does_not_wrap_round() -> None:
    """One record more, and 21 times the total was −2⁶³: the publication moved by 10¹⁴ where 10⁵ was paid for."""
    scale = ranges(20)._stream.law.scales[0]
    assert scale > 1
    tables = []
    for total in (2**63 // scale, 2**63 // scale + 1):
        sketch = ranges(20)
        sketch.update([5], counts=[total])
        vector = joined(sketch._stream.law, sketch._today._exact())
        assert vector[0] > 0
        tables += [table for _, table in sketch.design.step(sketch._stream._state, vector, 1)]
    moved = math.sqrt(float(np.sum((tables[0] - tables[1]).astype(float) ** 2)))
    law = sketch._stream.law
    assert moved <= law.design.sensitivity(law.contribution, law.horizon).l2


@pytest.mark.parametrize("start", [ranges, counts])
def test_a_part_is_merged_on_one_day_and_once(start: Any) -> None:
    sketch = start()
    part = sketch.empty_day()
    part.update([5] * 7)
    sketch.merge_today(part)
    with pytest.raises(InvalidInput, match="already in the sketch"):
        sketch.merge_today(part)
    sketch.publish_day()
    sketch = type(sketch).from_sensitive_bytes(sketch.to_sensitive_bytes())
    with pytest.raises(InvalidInput, match="already in the sketch"):
        sketch.merge_today(part)


@pytest.mark.parametrize("names", [None, ["a", "b"]])
def test_buffers_that_no_days_leave_are_refused(names: Any) -> None:
    """A forged buffer just below 2⁶³: the next record carries it over, and is seen."""
    sketch = dps.ContinualSketch(dps.Histogram(unit=RECORD, key_type="text"), keys=names, **TERMS)
    sketch.day(["a"])
    document = files.decode(sketch.to_sensitive_bytes(), allow_sensitive=True)
    forged = np.full_like(document.arrays["state"], 2**63 - 1)
    document = replace(document, arrays={**document.arrays, "state": forged})
    with pytest.raises(FileRefused, match="buffers"):
        dps.ContinualSketch.from_document(document)


def test_copies_of_a_stream_that_found_nothing_are_told_apart() -> None:
    start = dps.ContinualSketch(dps.Histogram(unit=RECORD, key_type="int"), **TERMS)
    copies = [dps.ContinualSketch.from_sensitive_bytes(start.to_sensitive_bytes()) for _ in range(2)]
    assert [copy.day([1]).keys for copy in copies] == [[], []]
    assert copies[0].publication != copies[1].publication
    again = dps.ContinualSketch.from_sensitive_bytes(copies[0].to_sensitive_bytes())
    assert again.publication == copies[0].publication


def test_intervals_of_many_keys_at_once_hold_without_delta() -> None:
    """A sum of two Laplace draws is no normal one far out: of a thousand keys some missed, nine times of ten."""
    keys, held = list(range(1000)), 0
    for _ in range(40):
        sketch = dps.ContinualSketch(dps.Histogram(unit=RECORD), keys=keys, days=30, epsilon=1.0, delta=0)
        for _ in range(2):
            sketch.day(keys, counts=[1000] * len(keys))
        top = sketch.total().top(len(keys))
        held += bool(np.all((top.low <= 2000) & (top.high >= 2000)))
    assert held >= 32  # 38 on average; 31 or fewer of 40 have a chance below 10⁻³


@pytest.mark.parametrize("again", [False, True])
def test_a_micro_batch_is_counted_once_whatever_ends_a_day_without_one(tmp_path: Path, again: bool) -> None:
    """Published, not committed; then a day without records is noted and not published; then Spark repeats the batch."""
    streaming = pytest.importorskip("dpsketch.spark.streaming")
    counted: list[int] = []

    class Daily(streaming.DailyStream):  # type: ignore[misc, name-defined]
        def _count(self, sketch: Any, batch: Any) -> None:
            counted.append(len(batch))
            sketch.update(batch)

    def opened() -> Any:
        return Daily(tmp_path / "state", ranges, lambda release, day: None, key="value")

    daily = opened()
    daily([1] * 7, 0)
    daily._publish_until = Mock(side_effect=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        daily.end_day(2)
    daily = opened()
    if again:
        daily.end_day(2)
    daily([1] * 7, 0)
    daily([1] * 3, 1)
    assert counted == [7, 3]
    assert daily._state.load().days_published == 3


@pytest.mark.parametrize(("factor", "taken"), [(1 - 1e-14, True), (1.5, True), (1 - 1e-7, False), (0.5, False)])
def test_found_names_go_on_with_noise_that_another_machine_calibrated(factor: float, taken: bool) -> None:
    """Logarithms differ in their last bits from machine to machine; less noise than that is refused."""
    sketch = dps.ContinualSketch(dps.Histogram(unit=dps.per_record(), key_type="text"), days=9, epsilon=1.0, delta=1e-6)
    document = files.decode(sketch.to_sensitive_bytes(), allow_sensitive=True)
    document.header["receipt"]["laws"][0]["noise"]["sigma"] *= factor
    if taken:
        assert dps.ContinualSketch.from_document(document).days_published == 0
    else:
        with pytest.raises(FileRefused, match="guarantee"):
            dps.ContinualSketch.from_document(document)
