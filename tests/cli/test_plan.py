"""`dpsketch plan`: proposals for people and for programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Runner = Callable[..., Any]

BUDGET = ("--epsilon", 1, "--delta", "1e-6")
DATA = ("--records", 20_000, "--keys", 1_000, "--skew", 1.0)


def test_a_proposal_is_a_command_to_run(dpsketch: Runner) -> None:
    found = dpsketch("plan", "counts", *BUDGET, *DATA, "--max-keys", 5, "--target-error", 60)
    assert found.code == 0
    assert found.out.startswith("Proposed: dpsketch run counts SOURCE… --user COLUMN --max-keys 5 --rows ")
    assert "Predicted error: " in found.out
    assert "Memory: " in found.out


def test_a_proposed_command_protects_the_unit_that_was_planned(dpsketch: Runner) -> None:
    """Without --neighbours replace or --max-weight it would add less noise than was planned, for another promise."""
    unit = ("--max-keys", 5, "--max-weight", 2.5, "--neighbours", "replace")
    said = "--user COLUMN --max-keys 5 --weight COLUMN --max-weight 2.5 --neighbours replace"
    assert said in dpsketch("plan", "histogram", *BUDGET, *DATA, *unit).out
    assert said in dpsketch("plan", "--question", "keys", *BUDGET, *DATA, *unit, "--json").json["command"]
    assert "--neighbours" not in dpsketch("plan", "histogram", *BUDGET, *DATA).out


def test_whole_numbers_may_be_written_as_powers_of_ten(dpsketch: Runner) -> None:
    guess = (*BUDGET, "--records", "1e3", "--json")
    powers = dpsketch("plan", "distinct", *guess, "--keys", "1e2", "--memory", "1e5").json
    digits = dpsketch("plan", "distinct", *guess, "--keys", "100", "--memory", "100000").json
    assert powers["shape"] == digits["shape"]
    for keys in ("1.5", "many", "1e999", "nan"):
        refused = dpsketch("plan", "counts", *BUDGET, "--records", "1e6", "--keys", keys)
        assert refused.code == 2
        assert "not a whole number" in refused.err


def test_a_plan_may_assume_a_delta_and_says_so(dpsketch: Runner) -> None:
    found = dpsketch("plan", "counts", "--epsilon", 1, "--records", 20_000, "--target-error", 100)
    assert found.code == 0, found.err
    assert "--delta 1e-6 -o" in found.out
    assert "Assuming --delta 1e-6;" in found.err


@pytest.mark.parametrize(
    ("typed", "read"), [(("0.12345678", "2.5e-7"), 0.12345678), (("10", "0"), 10.0), (("1e-2", "1e-06"), 0.01)]
)
def test_a_proposed_command_has_the_budget_that_was_planned(
    dpsketch: Runner, typed: tuple[str, str], read: float
) -> None:
    """To the last digit: one that is rounded up spends more; and no number has zeros that nobody types."""
    epsilon, delta = typed
    asked = ("--records", 20_000, "--target-error", 1e6)
    words = dpsketch("plan", "counts", "--epsilon", epsilon, "--delta", delta, *asked).out.split()
    said = {name: words[words.index(name) + 1] for name in ("--epsilon", "--delta")}
    assert float(said["--epsilon"]) == read
    assert float(said["--delta"]) == float(delta)
    assert said["--delta"] in ("2.5e-7", "0", "1e-6")
    rho = dpsketch("plan", "counts", "--rho", "0.00001234567", *asked).out
    assert "--rho 1.234567e-5 -o" in rho


@pytest.mark.parametrize("kind", ["histogram", "counts", "heavy", "sparse", "moment", "density", "distinct", "ranges"])
def test_programs_read_a_plan_and_use_its_shape(dpsketch: Runner, kind: str) -> None:
    own = ("--p", 0.5) if kind == "moment" else ()
    found = dpsketch("plan", kind, *BUDGET, *DATA, *own, "--memory", 1 << 20, "--json").json
    assert found["kind"] == kind
    assert found["error"] > 0
    assert found["memory"] <= 1 << 20
    assert found["budget"] == {"epsilon": 1.0, "delta": 1e-6, "rho": None}


@pytest.mark.parametrize(("dim", "features"), [(2, "series"), (3, "series"), (4, None), (10, None), (384, None)])
def test_a_density_of_few_coordinates_is_a_series_and_of_more_race(
    dpsketch: Runner, dim: int, features: str | None
) -> None:
    found = dpsketch("plan", "density", "--dim", dim, *BUDGET, "--records", 10_003, "--json").json
    assert found["shape"].get("features") == features


def test_a_proposed_shape_is_what_run_takes(dpsketch: Runner, tmp_path: Any) -> None:
    (tmp_path / "visits.csv").write_text("page\n" + "/a\n/b\n" * 20)
    shape = dpsketch("plan", "heavy", *BUDGET, *DATA, "--key-bytes", 8, "--json").json["shape"]
    options = [part for name, value in shape.items() for part in (f"--{name.replace('_', '-')}", value)]
    run = dpsketch("run", "heavy", "visits.csv", "--key", "page", *options, *BUDGET, "-o", "out.dps")
    assert run.code == 0, run.err


def test_a_question_compares_the_kinds_and_ends_in_a_command(dpsketch: Runner, tmp_path: Any) -> None:
    (tmp_path / "visits.csv").write_text("page\n" + "/a\n/b\n" * 40)
    found = dpsketch("plan", "--question", "keys", *BUDGET, *DATA)
    assert found.code == 0, found.err
    assert "names found" in found.out
    assert "Use histogram: it names about" in found.out
    assert "counts, where keys must not be stored" in found.out
    line = next(line for line in found.out.splitlines() if line.startswith("Proposed: "))
    command = line.replace("SOURCE…", "visits.csv").replace("COLUMN", "page").split()[2:]
    assert dpsketch(*command).code == 0
    assert dpsketch("top", "out.dps", "--json").json["estimates"]


def test_programs_read_a_comparison(dpsketch: Runner) -> None:
    shape = ("--records", 200_000, "--keys", 20_000, "--users", 20_000)
    found = dpsketch("plan", "--question", "keys", *BUDGET, *shape, "--json")
    assert "Assuming --max-keys 10" in found.err
    told = found.json
    assert told["use"] == told["proposals"][0]["kind"] == "histogram"
    assert {one["kind"] for one in told["proposals"]} == {"histogram", "histogram-votes", "counts", "sparse", "heavy"}
    assert told["proposals"][0]["also"]["found"] > 100
    assert all(one["error"] > 0 and one["memory"] > 0 and one["suits"] for one in told["proposals"])
    assert "--user COLUMN --max-keys 10" in told["command"]


def test_a_list_or_pure_privacy_change_the_comparison(dpsketch: Runner) -> None:
    pure = ("--epsilon", 1, "--delta", 0)
    listed = dpsketch("plan", "--question", "keys", *pure, *DATA, "--listed", "--json").json
    assert listed["use"] == "histogram"
    assert listed["command"].endswith("--keys-from FILE -o out.dps")
    alone = dpsketch("plan", "histogram", *pure, *DATA)
    assert "need delta > 0" in alone.out
    assert "--keys-from FILE" in alone.out


def test_a_question_or_a_kind_not_both(dpsketch: Runner) -> None:
    assert dpsketch("plan", *BUDGET, *DATA).code == 2
    assert dpsketch("plan", "counts", "--question", "keys", *BUDGET, *DATA).code == 2
    unknown = dpsketch("plan", "--question", "colours", *BUDGET, *DATA)
    assert unknown.code == 2
    assert "'colours' is no question for which kinds are compared: ask for keys, or name a kind." in unknown.err
    assert dpsketch("plan", "--question", "keys", *BUDGET, *DATA, "--target-error", 5).code == 2


def test_refusals_say_what_can_be_had(dpsketch: Runner) -> None:
    found = dpsketch("plan", "counts", *BUDGET, *DATA, "--target-error", 0.01)
    assert found.code == 2
    assert "the least is about" in found.err
    assert dpsketch("plan", "moment", *BUDGET, *DATA).code == 2
    assert dpsketch("plan", "counts", *DATA).code == 2
    assert dpsketch("plan", "counts", *BUDGET).code == 2
    assert dpsketch("plan", "medians", *BUDGET, *DATA).code == 2


def test_error_against_the_bound_is_told_and_drawn(dpsketch: Runner, tmp_path: Path) -> None:
    asked = ("plan", "histogram", "--records", 500_000, "--keys", 20_000, "--epsilon", 1, "--delta", "1e-6")
    told = dpsketch(*asked, "--users", 50_000, "--bounds", "curve.svg")
    assert told.code == 0, told.err
    assert "Least error at --max-keys 64" in told.out
    assert (tmp_path / "curve.svg").stat().st_size > 5000
    assert dpsketch(*asked, "--users", 50_000, "--spread", 0.2, "--bounds", "c.png", "--json").json["best"] < 64
    for wrong in ((*asked, "--bounds", "c.png"), (*asked, "--users", 9, "--bounds", "c.txt")):
        assert dpsketch(*wrong).code == 2


def test_buckets_are_proposed_by_the_command_that_makes_them(dpsketch: Runner) -> None:
    told = dpsketch("plan", "histogram-votes", *BUDGET, *DATA)
    assert told.code == 0, told.err
    assert told.out.startswith("Proposed: dpsketch run histogram SOURCE… --max-counters ")
    assert "found: " in told.out


TABLE = ("--groups", 50, "--sum", "amount=0:400", "--mean", "amount=0:100", "--quantiles", "amount:.5,.9=-5:100")


def test_the_plan_of_a_table_is_a_command_and_a_width_for_each_column(dpsketch: Runner) -> None:
    """With the columns that were asked for, and both means where the unit is a user."""
    found = dpsketch("plan", "table", *BUDGET, "--records", 20_000, "--users", 4_000, *TABLE)
    assert found.code == 0, found.err
    assert found.out.startswith(
        "Proposed: dpsketch table SOURCE… --by COLUMNS --user COLUMN --users --sum amount=0:400 --mean amount=0:100 "
        "--quantiles amount:0.5,0.9=-5:100 --epsilon 1 --delta 1e-6 -o out.dps\n"
    )
    assert "Groups are named from about " in found.out
    for name in ("users", "sum_amount", "mean_amount", "quantile_amount_0.5", "mean_amount over users"):
        assert f"\n{name} " in found.out
    assert "--max-keys 3 --users" in dpsketch(
        "plan", "table", *BUDGET, "--records", 20_000, "--users", 4_000, "--max-keys", 3, *TABLE
    ).out  # fmt: skip


def test_the_plan_of_a_table_of_records_has_no_users(dpsketch: Runner) -> None:
    found = dpsketch("plan", "table", *BUDGET, "--records", 20_000, "--groups", 50, "--count", "--listed")
    assert "--by COLUMNS --count --epsilon" in found.out
    assert "--groups FILE -o out.dps" in found.out
    assert "Groups are named" not in found.out
    shown = dpsketch("plan", "table", *BUDGET, "--records", 20_000, "--groups", 50, "--mean", "amount", "--json").json
    assert shown["also"]["mean_amount"] == shown["error"]
    assert "users" not in shown["also"]


@pytest.mark.parametrize("asked", [("--count",), ("--sum", "x"), ("--quantiles", "0.5", "--quantiles", "0.9")])
def test_columns_are_of_tables_only(dpsketch: Runner, asked: tuple[str, ...]) -> None:
    refused = dpsketch("plan", "ranges", *BUDGET, *DATA, *asked)
    assert refused.code == 2
    assert "dpsketch plan table" in refused.err
