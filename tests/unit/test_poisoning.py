"""What a forged report weighs: the figures of the threat model, found in the estimates of a collector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dpsketch import local
from dpsketch.server.aggregates import doubts_of

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "threat-model.md"
HONEST = 400
EIGHT = [str(number) for number in range(8)]

ROWS: list[tuple[Any, str]] = [
    (local.SubsetHashing(epsilon=2.0, max_items=1), "| `SubsetHashing` | 2 | 1 | 2.25 |"),
    (local.SubsetHashing(epsilon=0.1, max_items=26), "| `SubsetHashing` | 0.1 | 26 | 1,158 |"),
    (local.SubsetDirect(epsilon=1.0, max_items=1, domain=EIGHT), "| `SubsetDirect`, 8 keys | 1 | 1 | 5.66 |"),
    (local.OptimalLocalHashing(epsilon=1.0), "| `OptimalLocalHashing` | 1 | 1 | 3.33 |"),
    (local.CountMeanSketch(epsilon=1.0, rows=8, width=64), "| `CountMeanSketch` | 1 | 1 | 2.57"),
    (local.HadamardCountMean(epsilon=2.0, rows=8, width=64), "| `HadamardCountMean` | 2 | 1 | 1.32 |"),
]


def people(protocol: Any, key: str, number: int) -> Any:
    """What ``number`` people hold who hold one key, as the protocol takes it."""
    alone = isinstance(protocol, local.OptimalLocalHashing | local.CountMeanSketch | local.HadamardCountMean)
    return [key] * number if alone else [[key]] * number


def persons(protocol: Any, table: Any, key: str) -> float:
    collector = protocol.collector().add(table)
    return float(collector.estimate([key]).value[0] * collector.users)


@pytest.mark.parametrize(("protocol", "row"), ROWS, ids=lambda one: one if isinstance(one, str) else one.name)
def test_one_forged_report_weighs_what_the_page_says(protocol: Any, row: str) -> None:
    """Estimates are linear in the reports. So one more that supports a key adds (1 − q)/(p − q) people, exactly."""
    honest = protocol.report(people(protocol, "1", HONEST))
    before = persons(protocol, honest, "0")
    chance, other = protocol.chances
    weight = (1 - other) / (chance - other)
    drawn = protocol.report(people(protocol, "0", 300))
    with_one = (pa.concat_tables([honest, drawn.slice(place, 1)]).combine_chunks() for place in range(300))
    added = next(more for table in with_one if (more := persons(protocol, table, "0") - before) > 0)
    assert added == pytest.approx(weight, rel=1e-9, abs=1e-6)
    stated = float(row.split("|")[4].replace(",", "").split()[0])
    assert stated == pytest.approx(weight, abs=0.006 if weight < 100 else 0.5)
    assert row in PAGE.read_text(encoding="utf-8")


def test_a_key_that_is_asked_twice_is_no_sign_of_forged_reports() -> None:
    protocol = local.OptimalLocalHashing(epsilon=4.0)
    collector = protocol.collector().add(protocol.report(["tea"] * 5000))
    assert doubts_of(collector.estimate(["tea"] * 3), protocol) == doubts_of(collector.estimate(["tea"]), protocol)
