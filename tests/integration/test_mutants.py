"""No mutant is out of date, each has tests that are known to kill it, and the gate tells what becomes of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS, Mutant, parsed
from tests.mutants.gate import Copy
from tests.mutants.matrix import killers, stored
from tests.mutants.place import matched


def test_no_mutant_is_out_of_date() -> None:
    """Each replaces code that stands in one place, makes a program of it, and was killed by tests that exist."""
    assert len(MUTANTS) >= 500
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    rows = stored()
    for mutant in MUTANTS:
        found = mutant.found()
        assert found is not None, mutant.name
        compile(found.replaced(mutant.new), mutant.where, "exec")
        assert killers(rows.get(mutant.name, {})), f"{mutant.name}: run python -m tests.mutants --only {mutant.name}"


@pytest.mark.full
def test_the_gate_tells_survivors_from_stale_and_broken_ones(tmp_path: Path) -> None:
    copy, tests = Copy(tmp_path), ["tests/unit/test_numbers.py"]
    assert copy.loaded().is_relative_to(copy.sources)

    def outcome(old: str, new: str) -> str:
        return copy.judge(Mutant("it", "whole_number", "nothing", old, new), tests).outcome

    assert outcome("return", "return") == "stale"
    assert outcome("code that is not there", "") == "stale"
    assert outcome("def whole_number(", "def  whole_number(") == "survived"
    assert outcome("def whole_number(", "def whole_number((") == "broken"
    copy.close()


def test_a_mutant_is_found_whatever_the_file_and_the_line_breaks() -> None:
    """Code is found by the name of its function, whatever its white space, and only if it stands in one place."""
    found = matched("whole_number", "def whole_number (\n    name")
    assert found is not None
    assert found.path.name == "numbers.py"
    assert matched("numbers:whole_number", "def whole_number(") == matched("whole_number", "def whole_number(")
    assert matched("noise:whole_number", "def whole_number(") is None
    assert matched("whole_number", "raise") is None  # stands there more than once
    assert matched("nowhere", "def") is None


def test_a_paragraph_without_a_place_or_code_is_refused() -> None:
    for text in ("# of\n\na-name\nbreaks\n- a", "# of\n\na in b\nbreaks\n+ a", "# of\n\na in b\nbreaks\n- a\nmore"):
        with pytest.raises(ValueError, match="not a mutant"):
            parsed(text)
