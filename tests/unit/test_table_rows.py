"""Rows of a released table as the service sends them, and the questions that they rest on."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch.errors import InvalidInput
from dpsketch.server import tables
from dpsketch.server.models import AskTable

DAYS = [datetime.date(2024, 1, day) for day in (1, 2, 3)]


@pytest.fixture(scope="module")
def released() -> dps.PrivateTable:
    table = dps.Table(by=["day", "shop"], columns=[dps.count(), dps.sum("sales", bounds=(0, 10))])
    days = [day for day in DAYS for _ in range(400)]
    table.update(pa.table({"day": days, "shop": ["north", "South"] * 600, "sales": [5.0] * 1200}))
    return table.release(epsilon=4.0, delta=1e-6)


def ask(release: dps.PrivateTable, **asked: Any) -> Any:
    return json.loads(bytes(tables.rows_reply(release, AskTable(**asked)).body))


def test_names_that_are_days_come_as_text_in_their_order(released: dps.PrivateTable) -> None:
    found = ask(released, by=["day"], sort="day", descending=True)
    assert [row[0] for row in found["rows"]] == ["2024-01-03", "2024-01-02", "2024-01-01"]
    assert [row[:2] for row in ask(released, search="-02 s")["rows"]] == [["2024-01-02", "South"]]


def test_an_answer_has_a_limited_number_of_cells(released: dps.PrivateTable, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(ask(released, limit=10_000)["rows"]) == 6
    monkeypatch.setattr(tables, "_MOST_CELLS", 20)
    found = ask(released, limit=10_000)
    assert (len(found["rows"]), len(found["columns"]), found["total"]) == (2, 8, 6)
    monkeypatch.setattr(tables, "_MOST_CELLS", 1)  # more columns than cells: still a row, so that a reader gets on
    assert len(ask(released, limit=10_000, offset=5)["rows"]) == 1
    assert ask(released, offset=6)["rows"] == []


def test_only_rows_that_were_added_up_come_with_a_note(released: dps.PrivateTable) -> None:
    assert "may belong to any row" in ask(released, by=["shop"])["note"]
    assert ask(released, by=["shop", "day"])["note"] == ""


def test_a_roll_up_to_all_columns_is_the_table(released: dps.PrivateTable) -> None:
    """Nothing is hidden from such a row, so its intervals are as narrow as those of the table."""
    turned = released.rollup("shop", "day").to_json(confidence=0.9)
    expected = sorted(released.to_json(confidence=0.9), key=lambda row: (row["shop"], row["day"]))
    assert turned == [{"shop": row["shop"], "day": row["day"], **row} for row in expected]
    with pytest.raises(InvalidInput, match="once"):
        released.rollup("shop", "shop")


def test_others_have_the_confidence_that_is_asked_for(released: dps.PrivateTable) -> None:
    assert released.others == released.others_at(0.95)
    narrow, wide = (released.others_at(confidence) for confidence in (0.5, 0.99))
    assert wide["sum_sales_low"] < narrow["sum_sales_low"] < narrow["sum_sales"] == wide["sum_sales"]
    assert ask(released, confidence=0.5)["others"] == narrow


def test_questions_about_groups_are_answered_from_the_rows(released: dps.PrivateTable) -> None:
    found = released.answer(["2024-01-02,north"], confidence=0.9, estimator=None, key_type=None)
    [row] = [row for row in released.to_json(confidence=0.9) if (row["day"], row["shop"]) == ("2024-01-02", "north")]
    assert [(*key, value, low, high) for key, value, low, high in found] == [
        ("2024-01-02,north", name, *(row[f"{name}{end}"] for end in ("", "_low", "_high")))
        for name in ("count", "sum_sales")
    ]


def test_a_picture_says_which_column_which_groups_and_what_its_intervals_promise(released: dps.PrivateTable) -> None:
    [axes] = released.plot("sum_sales", n=4).axes
    title = axes.get_title("left")
    assert title.startswith("sum_sales, 4 largest of 6 groups, ε = 4, δ = 1e-06\n")
    assert released.meanings["sum_sales"] in title
    # The groups were picked for being large, and each interval holds by itself.
    assert axes.get_xlabel() == "sum_sales, with 95% intervals, each on its own"
    assert [each.get_text() for each in axes.get_xticklabels()][-1].count(",") == 1  # 1,000, not 1e3
    largest = sorted(released.to_json(), key=lambda row: -row["sum_sales"])[:4]
    assert [each.get_text() for each in axes.get_yticklabels()] == [f"{row['day']},{row['shop']}" for row in largest]
    assert "all groups" in released.plot().axes[0].get_title("left")


def test_a_picture_of_a_column_with_dollars_is_drawn() -> None:
    table = dps.Table(by="place", columns=[dps.sum("$\\frac$", bounds=(0, 1))])
    table.update(pa.table({"place": ["a$b$"] * 500, "$\\frac$": [1.0] * 500}))
    figure = table.release(epsilon=4.0, delta=1e-6).plot()
    figure.draw_without_rendering()


def test_a_notebook_shows_numbers_on_the_right_and_markup_as_text() -> None:
    table = dps.Table(by="place")
    names = ["<b>bold</b>", *(f"place {number}" for number in range(60))]
    table.update(pa.table({"place": [name for name in names for _ in range(300)]}))
    release = table.release(epsilon=4.0, delta=1e-6)
    shown = release._repr_html_()
    assert "<b>" not in shown
    assert "&lt;b&gt;bold&lt;/b&gt;" in shown
    assert shown.count("<tr>") == 51
    assert shown.count("text-align:left") == shown.count("text-align:right") == 51
    assert shown.count("<small") == 50
    assert "… 11 more rows" in shown
    assert "ε = 4" in shown
    assert "place" in release.to_text(1).splitlines()[0]
    assert release.to_text(1).splitlines()[1].endswith("]")
