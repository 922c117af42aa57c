"""A new kind is its own classes and one row: everything else finds it there.

The kind is that of CONTRIBUTING.md, taken from the page: it counts the records whose key is a multiple of ``width``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import dpsketch as dps
import guide
from dpsketch import plan
from dpsketch.cli import main
from dpsketch.errors import InvalidInput
from dpsketch.kinds import KINDS, Kind, load, load_sensitive
from dpsketch.plan import Amount, Guess
from dpsketch.server.releases import Releases
from dpsketch.server.storage import Storage
from dpsketch.sketches.kinds import Option


def _module(path: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that the page says to save, under the name it would have."""
    name = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(guide.SAVED[path], path, "exec"), module.__dict__)
    return module


@pytest.fixture
def multiples(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The kind of the page, with its row in the table."""
    module = _module("src/dpsketch/sketches/multiples.py", monkeypatch)
    row = eval(guide.ROW, {"Kind": Kind, "Option": Option})
    monkeypatch.setitem(KINDS, row.name, row)
    return module


pytestmark = pytest.mark.usefixtures("multiples")


@pytest.fixture
def released(multiples: ModuleType) -> Any:
    sketch = multiples.Multiples(unit=dps.per_record(), width=3)
    sketch.update(range(3000))
    return sketch.release(epsilon=1.0, delta=0)


def _run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["dpsketch", *map(str, words)])
    code: Any = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    shown = capfd.readouterr()
    return int(code), shown.out + shown.err


def test_its_files_are_read(multiples: ModuleType, released: Any, tmp_path: Path) -> None:
    released.save(tmp_path / "it.dps")
    again = dps.load(tmp_path / "it.dps")
    assert isinstance(again, multiples.PrivateMultiples)
    assert again.value == released.value
    sketch = multiples.Multiples(unit=dps.per_record(), width=3)
    sketch.update([3, 4])
    assert isinstance(load_sensitive(sketch.to_sensitive_bytes()), multiples.Multiples)
    assert sketch.to_shared_bytes() == sketch.to_sensitive_bytes()


def test_the_command_line_makes_asks_and_draws_it(
    multiples: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("n,w\n" + "".join(f"{i},1\n" for i in range(3000)))
    made = ["run", "multiples", "t.csv", "--key", "n", "--epsilon", 1, "--delta", 0, "--no-ledger", "-o", "it.dps"]
    code, said = _run(monkeypatch, capfd, *made, "--width", 3)
    assert code == 0, said
    found = load("it.dps")
    assert isinstance(found, multiples.PrivateMultiples)
    assert abs(found.value - 1000) < 100
    code, said = _run(monkeypatch, capfd, "query", "it.dps")
    assert code == 0
    assert "multiples" in said
    code, said = _run(monkeypatch, capfd, "query", "it.dps", "a")
    assert code != 0
    assert "without keys" in said
    code, said = _run(monkeypatch, capfd, "inspect", "it.dps")
    assert code == 0
    assert "How many keys are multiples?" in said
    assert _run(monkeypatch, capfd, "plot", "it.dps", "-o", "it.png")[0] == 0
    assert Path("it.png").stat().st_size > 0
    code, said = _run(monkeypatch, capfd, "top", "it.dps")
    assert code != 0
    assert "no keys to list" in said


def test_the_service_lists_it(released: Any, tmp_path: Path) -> None:
    released.save(tmp_path / "it.dps")
    storage = Storage(str(tmp_path / "store.db"))
    releases = Releases(storage)
    releases.load((tmp_path,))
    (view,) = releases.views()
    assert view["kind"] == "multiples"
    assert view["questions"] == ["statement"]
    assert releases.get(view["id"]).whole()["spec"]["width"] == 3
    storage.close()


def test_it_is_planned(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    amount, guess = Amount(dps.per_record(), 1.0, 0.0), Guess(1e4, 100, 1.0)
    assert plan.propose("multiples", amount, guess).shape == {}
    with pytest.raises(InvalidInput, match="multiples"):
        plan.propose("divisors", amount, guess)
    code, said = _run(monkeypatch, capfd, "plan", "multiples", "--records", 1000, "--epsilon", 1)
    assert code == 0
    assert "dpsketch run multiples" in said
