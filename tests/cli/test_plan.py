"""`dpsketch plan`: a proposed command promises what was planned, and refusals say what can be had."""

from __future__ import annotations

from collections.abc import Callable
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
