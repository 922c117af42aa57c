"""No mutant is out of date; the full suite also tries the ten that matter most, and ``make mutants`` all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.gate import Copy, Mutant
from tests.mutants.place import matched

TOP = [mutant for mutant in MUTANTS if mutant.top]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    made = Copy(tmp_path_factory.mktemp("mutants"))
    assert made.loaded().is_relative_to(made.sources)
    yield made
    made.close()


@pytest.mark.full
@pytest.mark.parametrize("mutant", TOP, ids=lambda mutant: mutant.name)
def test_a_mutant_is_killed(mutant: Mutant, copy: Copy) -> None:
    verdict = copy.judge(mutant)
    assert verdict.outcome == "killed", verdict.by


def test_no_mutant_is_out_of_date() -> None:
    """Each replaces code that stands in one place, makes a program of it, and names tests that exist."""
    assert len(TOP) == 10
    assert len(MUTANTS) >= 80
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        found = mutant.found()
        assert found is not None, mutant.name
        compile(found.replaced(mutant.new), mutant.where, "exec")
        for named in mutant.tests.split():
            assert not named.startswith("tests/") or Path(named.partition("::")[0]).is_file(), mutant.name


@pytest.mark.full
def test_a_harmless_change_survives_and_missing_code_is_stale(copy: Copy) -> None:
    """The gate itself: a change of nothing that matters survives, code that is not there is out of date."""
    tests = "tests/unit/test_numbers.py -k test_ranges_of_whole"
    unchanged = Mutant("unchanged", "whole_number", "return", "return", tests, "nothing")
    assert copy.judge(unchanged).outcome == "stale"
    missing = Mutant("missing", "whole_number", "code that is not there", "", tests, "nothing")
    assert copy.judge(missing).outcome == "stale"
    harmless = Mutant("harmless", "whole_number", "def whole_number(", "def  whole_number(", tests, "nothing")
    assert copy.judge(harmless).outcome == "survived"
    wrong = Mutant("wrong", "whole_number", "def whole_number(", "def whole_number((", tests, "the syntax")
    assert copy.judge(wrong).outcome == "broken"


def test_a_mutant_is_found_whatever_the_file_and_the_line_breaks() -> None:
    """Code is found by the name of its function, whatever its white space, and only if it stands in one place."""
    found = matched("whole_number", "def whole_number (\n    name")
    assert found is not None
    assert found.path.name == "numbers.py"
    assert matched("numbers:whole_number", "def whole_number(") == matched("whole_number", "def whole_number(")
    assert matched("noise:whole_number", "def whole_number(") is None
    assert matched("whole_number", "raise") is None  # stands there more than once
    assert matched("nowhere", "def") is None
