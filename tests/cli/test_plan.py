"""`dpsketch plan`: proposals for people and for programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Runner = Callable[..., Any]

BUDGET = ("--epsilon", 1, "--delta", "1e-6")
DATA = ("--records", 20_000, "--keys", 1_000, "--skew", 1.0)


def test_a_proposed_command_protects_the_unit_that_was_planned(dpsketch: Runner) -> None:
    """Without --neighbours replace or --max-weight it would add less noise than was planned, for another promise."""
    unit = ("--max-keys", 5, "--max-weight", 2.5, "--neighbours", "replace")
    said = "--user COLUMN --max-keys 5 --weight COLUMN --max-weight 2.5 --neighbours replace"
    assert said in dpsketch("plan", "histogram", *BUDGET, *DATA, *unit).out
    plain = dpsketch("plan", "histogram", *BUDGET, *DATA).out
    assert "--neighbours" not in plain
    assert plain.startswith("Proposed: dpsketch run histogram SOURCE… ")


def test_a_proposed_command_has_the_budget_that_was_planned(dpsketch: Runner) -> None:
    """To the last digit: one that is rounded up spends more. A δ that nobody stated is assumed, and said to be."""
    asked = ("--records", 20_000, "--target-error", 1e6)
    for epsilon, delta in (("0.12345678", "2.5e-7"), ("10", "0")):
        words = dpsketch("plan", "counts", "--epsilon", epsilon, "--delta", delta, *asked).out.split()
        said = {name: words[words.index(name) + 1] for name in ("--epsilon", "--delta")}
        assert said == {"--epsilon": epsilon, "--delta": delta}
    assert "--rho 1.234567e-5 -o" in dpsketch("plan", "counts", "--rho", "0.00001234567", *asked).out
    assumed = dpsketch("plan", "counts", "--epsilon", 1, *asked)
    assert "--delta 1e-6 -o" in assumed.out
    assert "Assuming --delta 1e-6;" in assumed.err


@pytest.mark.parametrize(("kind", "own"), [("counts", ()), ("heavy", ("--key-bytes", 8))])
def test_programs_read_a_plan_and_use_its_shape(
    dpsketch: Runner, kind: str, own: tuple[object, ...], tmp_path: Path
) -> None:
    found = dpsketch("plan", kind, *BUDGET, *DATA, *own, "--memory", 1 << 20, "--json").json
    assert found["kind"] == kind
    assert found["error"] > 0
    assert found["memory"] <= 1 << 20
    assert found["budget"] == {"epsilon": 1.0, "delta": 1e-6, "rho": None}
    (tmp_path / "visits.csv").write_text("page\n" + "/a\n/b\n" * 20)
    options = [part for name, value in found["shape"].items() for part in (f"--{name.replace('_', '-')}", value)]
    run = dpsketch("run", kind, "visits.csv", "--key", "page", *options, *BUDGET, "-o", "out.dps")
    assert run.code == 0, run.err


def test_a_question_compares_the_kinds_and_ends_in_a_command(dpsketch: Runner, tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text("page\n" + "/a\n/b\n" * 40)
    asked = ("plan", "--question", "keys", *BUDGET, *DATA)
    found = dpsketch(*asked)
    assert found.code == 0, found.err
    assert "Use histogram: it names about" in found.out
    line = next(line for line in found.out.splitlines() if line.startswith("Proposed: "))
    command = line.replace("SOURCE…", "visits.csv").replace("COLUMN", "page").split()[2:]
    assert dpsketch(*command).code == 0
    told = dpsketch(*asked, "--users", 2_000, "--neighbours", "replace", "--json")
    assert "Assuming --max-keys 10" in told.err
    assert told.json["use"] == told.json["proposals"][0]["kind"] == "histogram"
    kinds = {one["kind"] for one in told.json["proposals"]}
    assert kinds == {"histogram", "histogram-votes", "counts", "sparse", "heavy"}
    assert all(one["error"] > 0 and one["memory"] > 0 and one["suits"] for one in told.json["proposals"])
    assert "--user COLUMN --max-keys 10" in told.json["command"]
    assert "--neighbours replace" in told.json["command"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ((*BUDGET, *DATA), "kind"),
        (("--question", "colours", *BUDGET, *DATA), "'colours' is no question"),
        (("counts", *BUDGET, *DATA, "--target-error", 0.01), "the least is about"),
        (("counts", *BUDGET, "--records", "1e6", "--keys", "1.5"), "not a whole number"),
        (("ranges", *BUDGET, *DATA, "--sum", "x"), "dpsketch plan table"),
    ],
)
def test_refusals_say_what_can_be_had(dpsketch: Runner, asked: tuple[object, ...], words: str) -> None:
    refused = dpsketch("plan", *asked)
    assert refused.code == 2
    assert words in refused.err


def test_error_against_the_bound_is_told_and_drawn(dpsketch: Runner, tmp_path: Path) -> None:
    told = dpsketch("plan", "histogram", *BUDGET, *DATA, "--users", 2_000, "--bounds", "curve.svg")
    assert told.code == 0, told.err
    assert "Least error at --max-keys " in told.out
    assert (tmp_path / "curve.svg").stat().st_size > 5000


TABLE = ("--sum", "amount=0:400", "--mean", "amount=0:100", "--quantiles", "amount:.5,.9=-5:100")


def test_the_plan_of_a_table_is_a_command_and_a_width_for_each_column(dpsketch: Runner) -> None:
    """With the columns that were asked for, and both means where the unit is a user."""
    data = ("--records", 20_000, "--groups", 50)
    found = dpsketch("plan", "table", *BUDGET, *data, "--users", 4_000, "--max-keys", 3, *TABLE)
    assert found.code == 0, found.err
    assert found.out.startswith(
        "Proposed: dpsketch table SOURCE… --by COLUMNS --user COLUMN --max-keys 3 --users --sum amount=0:400 "
        "--mean amount=0:100 --quantiles amount:0.5,0.9=-5:100 --epsilon 1 --delta 1e-6 -o out.dps\n"
    )
    for name in ("users", "sum_amount", "mean_amount", "quantile_amount_0.5", "mean_amount over users"):
        assert f"\n{name} " in found.out
    listed = dpsketch("plan", "table", *BUDGET, *data, "--count", "--listed").out
    assert "--by COLUMNS --count --epsilon" in listed
    assert "--groups FILE -o out.dps" in listed
    shown = dpsketch("plan", "table", *BUDGET, *data, "--mean", "amount", "--json").json
    assert shown["also"]["mean_amount"] == shown["error"]
    assert "users" not in shown["also"]
