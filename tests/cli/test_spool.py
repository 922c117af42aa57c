"""Two commands that end one file, in the orders that a kill can leave: one of them has it, and it is not lost."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, current_thread
from typing import Any

import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.cli import release
from dpsketch.cli.spool import Ending, Spool
from dpsketch.errors import DpsketchError, ReleaseRefused

UNIT = dps.per_record()


def sketch_file(path: Path) -> Path:
    dps.MomentSketch(p=0.5, size=20, unit=UNIT).save_sensitive(path, include_secret=True)
    return path


def whole(output: Path, *ended: Path) -> Spool:
    """A command that has its content whole, and is about to end files and to take its name."""
    data = files.encode(dps.CountSketch(rows=1, width=2, unit=UNIT).release(rho=1.0).to_document())
    spool = Spool.reserve(output, overwrite=False)
    spool.fit(data, [Ending.of(path) for path in ended])
    spool.write(data, sensitive=False)
    return spool


def stopped(spool: Spool, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Finish a command, killed when it takes a step for the first time."""

    def kill(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    home: Any = Path if step == "unlink" else os
    with monkeypatch.context() as patched:
        patched.setattr(home, step, kill)
        with pytest.raises(KeyboardInterrupt):
            spool.finish()
    spool._close()


@pytest.mark.parametrize("step", ["ftruncate", "unlink"])
def test_whoever_ends_a_file_first_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The first is killed when the sketch is overwritten and still has its name. The second must not pass for it."""
    sketch = sketch_file(tmp_path / "m.sketch")
    first, second = whole(tmp_path / "a.dps", sketch), whole(tmp_path / "b.dps", sketch)
    stopped(first, monkeypatch, step)
    with pytest.raises(DpsketchError):
        dps.load_sensitive(sketch)
    with pytest.raises(ReleaseRefused, match="used up by another command"):
        second.finish()
    Spool.reopen(tmp_path / "a.dps", overwrite=False).finish()
    assert dps.load(tmp_path / "a.dps").guarantee.holds
    assert not list(tmp_path.glob("*b.dps*"))


def test_two_merges_of_the_same_parts_leave_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each names the parts in another order, and they meet when both have overwritten them: none threw both away."""
    parts = [sketch_file(tmp_path / name) for name in ("m.sketch", "n.sketch")]
    first, second = whole(tmp_path / "a.dps", *parts), whole(tmp_path / "b.dps", *reversed(parts))
    overwritten, half_way, met = Event(), Event(), Event()
    unlink, truncate, unlinked = Path.unlink, os.ftruncate, dict.fromkeys("ab", 0)

    def slow_truncate(file: int, length: int) -> None:
        if current_thread().name.startswith("b"):
            overwritten.set()
            half_way.wait(0.5)
        truncate(file, length)

    def slow_unlink(path: Path, *given: Any, **options: Any) -> None:
        name = current_thread().name[0]
        unlinked[name] += 1
        if name == "a" and unlinked[name] == 2:
            half_way.set()
            met.wait(0.5)
        unlink(path, *given, **options)
        if name == "b":
            met.set()

    monkeypatch.setattr(os, "ftruncate", slow_truncate)
    monkeypatch.setattr(Path, "unlink", slow_unlink)
    with ThreadPoolExecutor(1, "a") as one, ThreadPoolExecutor(1, "b") as other:
        late = other.submit(second.finish)
        assert overwritten.wait(20)
        early = one.submit(first.finish)
        found = [early.exception(20), late.exception(20)]
    assert sum(each is None for each in found) == 1
    assert sum(isinstance(each, ReleaseRefused) for each in found) == 1
    monkeypatch.undo()
    assert len(list(tmp_path.iterdir())) == 1
    assert len(list(tmp_path.glob("[ab].dps"))) == 1


def test_a_file_that_came_after_it_was_read_is_not_destroyed(
    dpsketch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command replaced the sketch while this one released the old one: the new one is not what it ends."""
    sketch, other = sketch_file(tmp_path / "m.sketch"), sketch_file(tmp_path / "other.sketch")
    content, real = other.read_bytes(), release._releasable

    def replaced(path: Path) -> Any:
        loaded = real(path)
        shutil.move(other, sketch)
        return loaded

    monkeypatch.setattr(release, "_releasable", replaced)
    done = dpsketch("release", "m.sketch", "--epsilon", "1", "--delta", "1e-6", "-o", "out.dps")
    assert done.code == 1
    assert "used up by another command" in done.err
    assert sketch.read_bytes() == content
    assert not (tmp_path / "out.dps").exists()
