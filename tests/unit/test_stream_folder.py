"""A stream's folder: whatever is interrupted, nothing is shown that is not kept, and no day is shown with two draws."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
import ledgers
from dpsketch import files
from dpsketch.errors import FileRefused, LedgerError, ReleaseRefused, SketchBroken
from dpsketch.privacy import PureCost
from dpsketch.sketches.continual.folder import StreamFolder
from dpsketch.sketches.countsketch import ContinualCountSketch

SHAPE: dict[str, Any] = {"rows": 3, "width": 8, "unit": dps.per_record(), "key_type": "int"}


def begun(tmp_path: Path, ledger: dps.Ledger | None) -> StreamFolder:
    paid: dict[str, Any] = {} if ledger is None else {"ledger": ledger, "dataset": "web"}
    folder = StreamFolder(tmp_path / "state", ledger=ledger)
    folder.begin(ContinualCountSketch(days=10, **SHAPE, epsilon=1.0, delta=1e-6, **paid))
    return folder


def one_day(folder: StreamFolder) -> dps.ContinualSketch:
    sketch = folder.load()
    sketch.update([1, 2])
    folder.publish(sketch)
    return sketch


class Killed(BaseException):
    """As if the power had gone."""


def killing(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool) -> None:
    work: Callable[..., Any] = getattr(owner, name)

    def dies(*args: Any, **given: Any) -> Any:
        if after:
            work(*args, **given)
        raise Killed

    monkeypatch.setattr(owner, name, dies)


POINTS = [
    (dps.ContinualSketch, "publish_day", False),
    (dps.ContinualSketch, "_end_day", True),
    (files, "write", False),
    (files, "write", True),
    (dps.Ledger, "record_day", False),
    (dps.Ledger, "record_day", True),
]


@pytest.mark.parametrize(("owner", "name", "after"), POINTS, ids=lambda part: getattr(part, "__name__", str(part)))
def test_killed_anywhere_a_day_is_shown_with_one_draw(
    tmp_path: Path, ledger: dps.Ledger, owner: Any, name: str, after: bool
) -> None:
    folder = begun(tmp_path, ledger)
    first = one_day(folder).published.copy()
    sketch = folder.load()
    sketch.update([3])
    with pytest.MonkeyPatch.context() as patched:
        killing(patched, owner, name, after=after)
        with pytest.raises(Killed):
            folder.publish(sketch)
    again = folder.load()
    written = owner is dps.Ledger or (owner is files and after)
    assert again.days_published == (2 if written else 1)
    np.testing.assert_array_equal(again.published[:1], first)
    known = ledger.last_day(again.charge) if again.charge else None
    assert known == (again.days_published, again.publication)
    if owner is dps.Ledger:  # what was drawn is kept, and answered
        np.testing.assert_array_equal(again.published, sketch.published)
    elif name != "publish_day":  # drawn, and not known to be kept: nobody gets to see it
        for ask in (lambda: sketch.published, lambda: sketch.publication, sketch.total):
            with pytest.raises(SketchBroken):
                ask()
    if not written:
        again.update([3])
        folder.publish(again)
    assert folder.load().days_published == 2
    assert one_day(folder).days_published == 3
    assert ledger.verify() == []


def test_an_old_backup_is_refused(tmp_path: Path, ledger: dps.Ledger) -> None:
    folder = begun(tmp_path, ledger)
    one_day(folder)
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    one_day(folder)
    old = StreamFolder(tmp_path / "backup", ledger=ledger)
    with pytest.raises(ReleaseRefused, match="old copy"):
        old.load()
    # Loaded before the other went on, it is refused when it would draw the day again, and its state is left alone.
    shutil.copytree(tmp_path / "state", tmp_path / "twin")
    twin = StreamFolder(tmp_path / "twin", ledger=ledger)
    beside = twin.load()
    sketch = one_day(folder)
    before = (tmp_path / "twin" / "stream.sketch").read_bytes()
    with pytest.raises(ReleaseRefused, match="old copy"):
        twin.publish(beside)
    assert (tmp_path / "twin" / "stream.sketch").read_bytes() == before
    assert beside.days_published == 2
    # Whoever came by it all the same does not get past the ledger.
    assert sketch.charge is not None
    with pytest.raises(ReleaseRefused, match="with other noise"):
        ledger.record_day(sketch.charge, 3, "of another draw")


def test_a_copy_that_went_on_without_the_ledger_is_refused(tmp_path: Path, ledger: dps.Ledger) -> None:
    folder = begun(tmp_path, ledger)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    one_day(folder)
    alone = StreamFolder(tmp_path / "copy")
    for _ in range(3):
        one_day(alone)
        with pytest.raises(ReleaseRefused, match="another copy"):
            StreamFolder(tmp_path / "copy", ledger=ledger).load()
    assert one_day(folder).days_published == 2


def test_one_state_ends_one_day_once(tmp_path: Path) -> None:
    folder = begun(tmp_path, None)
    first, second = folder.load(), folder.load()
    folder.publish(first)
    before = (tmp_path / "state" / "stream.sketch").read_bytes()
    other = ContinualCountSketch(days=10, **SHAPE, epsilon=1.0, delta=1e-6)
    for stale in (second, other):
        with pytest.raises(ReleaseRefused, match="not the state"):
            folder.publish(stale)
        assert stale.days_published == 0
    assert (tmp_path / "state" / "stream.sketch").read_bytes() == before
    # Days that it ended in memory since it was loaded are of the state: written with the next, they are drawn once.
    first.publish_day()
    folder.publish(first)
    np.testing.assert_array_equal(folder.load().published, first.published)
    apart = folder.load()
    for sketch in (first, apart):
        sketch.publish_day()
    folder.publish(first)
    apart.publish_day()
    with pytest.raises(ReleaseRefused, match="not the state"):
        folder.publish(apart)


def test_another_ledger_does_not_know_the_stream(tmp_path: Path, ledger: dps.Ledger) -> None:
    folder = begun(tmp_path, ledger)
    sketch = one_day(folder)
    other = ledgers.begun(tmp_path / "other.db")
    for _ in range(2):
        with pytest.raises(LedgerError, match="another ledger"):
            StreamFolder(tmp_path / "state", ledger=other).load()
        with pytest.raises(LedgerError, match="another ledger"):
            StreamFolder(tmp_path / "state", ledger=other).publish(sketch)
        other.charge("web", [PureCost(1.0)], unit=dps.per_record())
    assert other.verify() == []
    assert sketch.days_published == 1


def test_a_stream_that_was_loaded_knows_the_ledger_of_its_folder(tmp_path: Path, ledger: dps.Ledger) -> None:
    """Charged as a part, it registers with that ledger what it merges, without being given the ledger again."""
    ledger.create("parts", epsilon=10.0, delta=1e-3, unit=dps.per_record(), parts="country")
    spend: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "ledger": ledger, "dataset": "parts"}
    folder = StreamFolder(tmp_path / "state", ledger=ledger)
    folder.begin(ContinualCountSketch(days=3, **SHAPE, **spend, part="fr"))
    sketch = folder.load()
    part, released = sketch.empty_day(), sketch.empty_day()
    copy = dps.CountSketch.from_sensitive_bytes(part.to_sensitive_bytes())
    sketch.merge_today(part)
    with pytest.raises(ReleaseRefused, match="parts must share no record"):
        copy.release(**spend, part="it")
    released.release(**spend, part="it")
    with pytest.raises(ReleaseRefused, match="parts must share no record"):
        sketch.merge_today(released)


def test_a_record_of_days_that_was_altered_is_not_trusted(tmp_path: Path, ledger: dps.Ledger, tamper: Any) -> None:
    folder = begun(tmp_path, ledger)
    one_day(folder)
    tamper("UPDATE dpsketch_day SET publication = 'other'")
    with pytest.raises(LedgerError, match="cannot be trusted"):
        folder.load()
    (problem,) = ledger.verify()
    assert "altered" in problem.what


def test_one_process_at_a_time_and_one_stream_a_folder(tmp_path: Path) -> None:
    folder = begun(tmp_path, None)
    sketch = folder.load()
    with folder.held(), pytest.raises(FileRefused, match="in use"), StreamFolder(tmp_path / "state").held():
        pass
    with folder.held(), ThreadPoolExecutor(1) as beside, pytest.raises(FileRefused, match="in use"):
        beside.submit(folder.publish, sketch).result()
    with pytest.raises(FileRefused, match="already"):
        begun(tmp_path, None)
    assert (tmp_path / "state" / "stream.sketch").stat().st_mode & 0o077 == 0
