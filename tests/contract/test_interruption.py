"""Interrupted anywhere, a sketch is as it was before, or it refuses to go on: nothing is counted twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from interrupting import interrupted, sampled_lines
from sensitive import BUDGET, MERGING, ROWS, Row, content

import dpsketch as dps
from dpsketch.errors import InvalidInput, SketchBroken
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.sketches.countsketch import ContinualCountSketch
from dpsketch.sketches.feeding import feed
from dpsketch.sources import Batch

import pyarrow as pa

MOST_LINES = 50

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def refuses_everything(row: Row, sketch: Any) -> bool:
    """Say whether a sketch refuses to go on; it must refuse all or nothing."""
    other = row.filled(1)
    actions: list[Callable[[], object]] = [
        lambda: row.add(sketch, 2),
        lambda: row.publish(sketch),
        sketch.to_sensitive_bytes,
        lambda: sketch.save_sensitive("/nowhere/at/all.sketch"),
    ]
    if row.merges:
        actions.append(lambda: sketch.merge(other))
        if hasattr(sketch, "empty_like"):
            actions.append(lambda: other.merge(sketch))
    try:
        content(sketch)
    except SketchBroken:
        for action in actions:
            with pytest.raises(SketchBroken, match="interrupted"):
                action()
        return True
    return False


def check(row: Row, prepare: Callable[[], Any], change: Callable[[Any], object]) -> None:
    """Interrupt a change of a sketch at many lines, and look at what is left."""
    refused = unchanged = 0
    whole = prepare()
    change(prepare_again(whole))  # once before, for what is imported and compiled at its first use
    twin = prepare_again(whole)
    for line in sampled_lines(lambda: change(twin), MOST_LINES):
        sketch = prepare_again(whole)
        before = content(sketch)
        if not interrupted(lambda some=sketch: change(some), line):
            continue
        if refuses_everything(row, sketch):
            refused += 1
        else:
            assert content(sketch) == before, f"interrupted at line {line}: changed, and goes on"
            unchanged += 1
            change(sketch)  # what was not begun may be tried again
            assert content(sketch) == content(twin)
    assert refused  # a change that was never seen half done was not tested
    assert unchanged


def prepare_again(sketch: Any) -> Any:
    moments = isinstance(sketch, dps.MomentSketch | dps.MomentProfile)
    data = sketch.to_sensitive_bytes(**({"include_secret": True} if moments else {}))
    return dps.load_sensitive(data)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_an_interrupted_update_adds_nothing_or_ends_the_sketch(row: Row) -> None:
    check(row, lambda: row.filled(0), lambda sketch: row.add(sketch, 1))


@pytest.mark.parametrize("row", MERGING, ids=lambda row: row.name)
def test_an_interrupted_merge_adds_nothing_or_ends_the_sketch(row: Row) -> None:
    whole = row.filled(0)
    partner = row.partner(whole, 1)
    before = content(partner)
    check(row, lambda: whole, lambda sketch: sketch.merge(partner))
    assert content(partner) == before  # the other one is read, whatever happens
