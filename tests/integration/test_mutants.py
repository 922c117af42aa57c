"""The ten mutants that matter most, in every run of the suite; ``make mutants`` tries all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.gate import Copy, Mutant

TOP = [mutant for mutant in MUTANTS if mutant.top]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    made = Copy(tmp_path_factory.mktemp("mutants"))
    assert made.loaded().is_relative_to(made.sources)
    yield made
    made.close()


@pytest.mark.parametrize("mutant", TOP, ids=lambda mutant: mutant.name)
def test_a_mutant_is_killed(mutant: Mutant, copy: Copy) -> None:
    verdict = copy.judge(mutant)
    assert verdict.outcome == "killed", verdict.by


def test_no_mutant_is_out_of_date() -> None:
    """Each replaces a text that is there once, makes a program of it, and names tests that exist."""
    assert len(TOP) == 10
    assert len(MUTANTS) >= 80
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        changed = mutant.applied()
        assert changed is not None, mutant.name
        compile(changed, mutant.file, "exec")
        for named in mutant.tests.split():
            assert not named.startswith("tests/") or Path(named.partition("::")[0]).is_file(), mutant.name


def test_what_is_no_mutant_survives_and_what_is_gone_is_stale(copy: Copy) -> None:
    """The gate itself: a change of nothing that matters survives, a text that is not there is out of date."""
    harmless = Mutant(
        "harmless", "errors.py", '"""', '"""', "tests/unit/test_numbers.py -k test_ranges_of_whole", "nothing"
    )
    assert copy.judge(harmless).outcome == "stale"
    first = harmless.path.read_text().splitlines()[0]
    spared = Mutant("spared", "errors.py", first, first + "  # so", harmless.tests, "nothing")
    assert copy.judge(spared).outcome == "survived"
    wrong = Mutant("wrong", "numbers.py", "def whole_number(", "def whole_number((", harmless.tests, "the syntax")
    assert copy.judge(wrong).outcome == "broken"
