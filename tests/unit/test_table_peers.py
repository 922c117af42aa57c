"""The page of tables beside other libraries has the numbers that were measured, and shows each library at its best."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.table_rivals import END, PAGE, SETTINGS, START, STORED, best, tables


def test_the_page_has_what_was_measured() -> None:
    written = PAGE.read_text(encoding="utf-8").split(START)[1].split(END)[0]
    assert written.strip() == tables(json.loads(STORED.read_text(encoding="utf-8"))).strip()


def test_every_setting_was_measured_or_is_named_as_lacking() -> None:
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    measured = [f"{each['question']}: {each['library']}, {each['told']}" for each in stored["rows"]]
    asked = [f"{each.question}: {each.library}, {each.told}" for each in SETTINGS]
    assert sorted([*measured, *stored["lacking"]]) == sorted(asked)


def row(groups: float, **errors: float) -> dict[str, Any]:
    return {"all": {"groups": groups, **{f"{name}_rms": error for name, error in errors.items()}}}


def test_a_rival_is_shown_with_most_groups_and_with_least_errors_among_half_as_many() -> None:
    most, exact, few, worse = row(40, sum=0.5), row(20, sum=0.1), row(19, sum=0.01), row(30, sum=0.2)
    assert best([most, exact, few, worse]) == [most, exact]
