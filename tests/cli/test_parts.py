"""Parts of a dataset in the shell, what the ledger tells of each release, and budgets that protect hardly anyone."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from dpsketch.ledger import Ledger

BUDGET = ("--epsilon", "1", "--delta", "1e-6")


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    path = tmp_path / "visits.csv"
    path.write_text("url,visitor\n" + "".join(f"/{row % 3},v{row}\n" for row in range(30)))
    return path


def test_a_day_costs_what_the_dearest_day_does(dpsketch, visits) -> None:
    created = dpsketch("ledger", "create", "web", "--epsilon", "2", "--delta", "1e-6", "--parts", "day")
    assert created.code == 0, created.err
    for day in ("2026-11-15", "2026-11-16", "2026-11-17"):
        made = dpsketch(
            "run", "counts", visits, "--key", "url", *BUDGET, "--dataset", "web", "--part", day, "-o", f"{day}.dps"
        )
        assert made.code == 0, made.err
        assert f"Charged to dataset 'web', part '{day}': ε=1.00 of 2.00" in made.err
    asked = ("run", "counts", visits, "--key", "url", "--epsilon", "1.9", "--delta", "5e-7", "--dataset", "web")
    fresh = dpsketch(*asked, "--part", "2026-11-18", "--dry-run", "--json", "-o", "x.dps")
    assert fresh.json["budget"]["allowed"] is True
    again = dpsketch(*asked, "--part", "2026-11-15", "-o", "x.dps")
    assert again.code == 3
    assert "A release of its kind fits with ε up to" in again.err
    assert "is named as in '2026-11-15'" in dpsketch(*asked, "--part", "15.11.", "-o", "x.dps").err
    assert "not divided into parts" in dpsketch(*asked[:-1], "other", "--part", "a", "-o", "x.dps").err
    assert "contradicts" in dpsketch(*asked[:-2], "--no-ledger", "--part", "a", "-o", "x.dps").err


def test_a_partial_is_released_as_a_part(dpsketch, visits) -> None:
    dpsketch("ledger", "create", "web", "--epsilon", "2", "--delta", "1e-6", "--parts", "day")
    assert dpsketch("build", "counts", visits, "--key", "url", "-o", "day.sketch").code == 0
    command = ("release", "day.sketch", *BUDGET, "--dataset", "web", "--part")
    assert dpsketch(*command, "2026-11-15", "-o", "one.dps").code == 0
    other = dpsketch(*command, "2026-11-16", "-o", "two.dps")
    assert other.code == 1
    assert "parts must share no record" in other.err


def test_users_compose_unless_each_is_in_one_part(dpsketch) -> None:
    total = ("--epsilon", "2", "--delta", "1e-6", "--per-user", "--parts", "country")
    assert dpsketch("ledger", "create", "visits", *total).code == 0
    assert dpsketch("ledger", "create", "homes", *total, "--disjoint-users").code == 0
    shown = dpsketch("ledger", "show", "--json").json["datasets"]
    assert [each["division"]["disjoint_users"] for each in shown] == [True, False]


def test_the_ledger_names_every_entry(dpsketch, visits, tmp_path) -> None:
    dpsketch("ledger", "create", "web", "--epsilon", "9", "--delta", "1e-6", "--parts", "day")
    asked = ("run", "counts", visits, "--key", "url", *BUDGET, "--dataset", "web")
    dpsketch(*asked, "--part", "2026-11-15", "-o", "one.dps")
    dpsketch(*asked, "--user", "visitor", "--max-keys", "1", "-o", "refused.dps")
    dpsketch(*asked, "-o", "all.dps")
    charges = dpsketch("ledger", "history", "web", "--json").json["charges"]
    assert [charge["part"] for charge in charges] == ["2026-11-15", None]
    assert charges[0]["origin"] == {"output": "one.dps", "columns": "key url", "who": getpass.getuser()}
    for command in ("show", "history"):
        shown = dpsketch("ledger", command, "web").out
        assert all(word in shown for word in ("2026-11-15", "one.dps", "all.dps", "key url", getpass.getuser()))
    assert Ledger(tmp_path / "dpsketch" / "ledger.db").verify() == []


def test_a_budget_that_protects_hardly_anyone_is_refused(dpsketch, visits, tmp_path) -> None:
    asked = ("run", "counts", visits, "--key", "url", "--no-ledger", "-o", "x.dps")
    for spend, words in (
        (("--epsilon", "10", "--delta", "1e-6"), "protects hardly anyone"),
        (("--rho", "5"), "protects hardly anyone"),
        (("--epsilon", "1", "--delta", "0.1"), "δ = 0.1 protects hardly anyone"),
        (("--epsilon", "1", "--delta", "1e-3", "--records", "1e3"), "no less than 1 over the 1,000 records"),
    ):
        refused = dpsketch(*asked, *spend)
        assert refused.code != 0
        assert words in refused.err
        assert not (tmp_path / "x.dps").exists()
        meant = dpsketch(*asked, *spend, "--yes", "--overwrite")
        assert meant.code == 0
        assert "Warning" not in meant.err
        (tmp_path / "x.dps").unlink()
    for spend in (
        ("--epsilon", "9.9", "--delta", "1e-6"),
        ("--rho", "0.5"),
        ("--epsilon", "1", "--delta", "0.009"),
        ("--epsilon", "1", "--delta", "1e-4", "--records", "1e3"),
    ):
        assert dpsketch(*asked, *spend, "--overwrite").code == 0
