"""Seeded releases answer, and promise, what they did before: see ``tests/frozen.py``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import frozen

WAS = json.loads(frozen.FILE.read_text())
NOW = dict(frozen.cases())


def test_every_case_is_frozen() -> None:
    assert NOW.keys() == WAS.keys()


@pytest.mark.parametrize("name", WAS)
def test_a_release_is_what_it_was(name: str) -> None:
    made: Callable[[], dict[str, Any]] = NOW[name]
    now, was = made(), WAS[name]
    assert now["key"] == was["key"]
    for number in ("epsilon", "delta", "rho"):
        assert now[number] == (was[number] if was[number] is None else pytest.approx(was[number], rel=1e-9))
    for side in ("value", "low", "high"):
        assert now[side] == pytest.approx(was[side], rel=1e-9, abs=1e-9)
    assert len(now["costs"]) == len(was["costs"])
    for mine, before in zip(now["costs"], was["costs"], strict=True):
        assert mine["kind"] == before["kind"]
        for part in before.keys() - {"kind"}:
            assert mine[part] == pytest.approx(before[part], rel=1e-9)
