"""A new kind is its own classes and one row: everything else finds it there.

The kind is that of CONTRIBUTING.md, taken from the page: it counts the records whose key is a multiple of ``width``.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import dpsketch as dps
from doc_pages import ROOT, blocks, run_command
from dpsketch.kinds import KINDS, Kind, load_sensitive
from dpsketch.sketches.kinds import Option
from tests.mutants.catalogue import parsed

PAGE = ROOT / "CONTRIBUTING.md"
# What the page says to save, by where; and the row that it says to add.
SAVED = dict(re.findall(r"^Save as `([^`]+)`:\n\n```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))
[ROW] = re.findall(r"^Add to `[^`]+`, as the last row[^\n]+:\n\n```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


def _module(path: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that the page says to save, under the name it would have."""
    name = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(SAVED[path], path, "exec"), module.__dict__)
    return module


@pytest.fixture
def multiples(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The kind of the page, with its row in the table."""
    module = _module("src/dpsketch/sketches/multiples.py", monkeypatch)
    row = eval(ROW, {"Kind": Kind, "Option": Option})
    monkeypatch.setitem(KINDS, row.name, row)
    return module


pytestmark = pytest.mark.usefixtures("multiples")


def test_what_the_page_says_of_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tests pass, and its mutant changes its code."""
    tests = _module("tests/privacy/test_multiples_privacy.py", monkeypatch)
    tests.test_one_record_moves_the_number_by_one()
    tests.test_the_noise_is_as_large_as_epsilon_asks()
    [block] = [one for one in blocks(PAGE) if one.language == "diff"]
    [mutant] = parsed(f"# Subject\n\n{block.text}")
    assert SAVED["src/dpsketch/sketches/multiples.py"].count(mutant.old) == 1


def test_the_command_line_makes_asks_and_draws_it(
    multiples: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("n,w\n" + "".join(f"{i},1\n" for i in range(3000)))
    for command, words in (
        ("run multiples t.csv --key n --epsilon 1 --delta 0 --no-ledger -o it.dps --width 3", ""),
        ("query it.dps", "multiples"),
        ("inspect it.dps", "How many keys are multiples?"),
        ("plot it.dps -o it.png", ""),
        ("plan multiples --records 1000 --epsilon 1", "dpsketch run multiples"),
    ):
        code, said = run_command(f"dpsketch {command}")
        assert code == 0, said
        assert words in said
    found = dps.load("it.dps")
    assert isinstance(found, multiples.PrivateMultiples)
    assert abs(found.value - 1000) < 100
    sketch = multiples.Multiples(unit=dps.per_record(), width=3)
    assert isinstance(load_sensitive(sketch.to_sensitive_bytes()), multiples.Multiples)
    assert Path("it.png").stat().st_size > 0
    for command, words in (("query it.dps a", "without keys"), ("top it.dps", "no keys to list")):
        code, said = run_command(f"dpsketch {command}")
        assert code != 0
        assert words in said
