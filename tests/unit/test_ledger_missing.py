"""A ledger that is not there any more, cannot be written to, or is called by another name."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps
from dpsketch.errors import InvalidInput, LedgerError
from dpsketch.ledger import Charge, Ledger, Payment
from dpsketch.privacy import PureCost

RECORD = dps.per_record()
HALF = PureCost(0.5)
GONE = "there is no ledger in .*restore it.*ledger create"

USES: dict[str, Callable[[Ledger], Any]] = {
    "charge": lambda ledger: ledger.charge("web", [HALF], unit=RECORD),
    "charge another": lambda ledger: ledger.charge("other", [HALF], unit=RECORD),
    "pay": lambda ledger: Payment(ledger, "binding").charge("web", [HALF], unit=RECORD),
    "preview": lambda ledger: ledger.preview("web", [HALF], unit=RECORD),
    "spent": lambda ledger: ledger.spent("web"),
    "history": lambda ledger: ledger.history("web"),
    "datasets": Ledger.datasets,
    "verify": Ledger.verify,
    "last day": lambda ledger: ledger.last_day(Charge("web", 1, "x")),
    "record a day": lambda ledger: ledger.record_day(Charge("web", 1, "x"), 1, "x"),
    "register": lambda ledger: ledger.register_partials(Charge("web", 1, "x"), ["x"]),
    "name a source": lambda ledger: ledger.name_source("x", "web"),
    "named sources": Ledger.named_sources,
}


def lost(path: Path, how: str) -> None:
    """Take a ledger away, as a mistaken command or a disk that was not mounted does."""
    for each in path.parent.glob(f"{path.name}-*"):
        each.unlink()
    path.unlink()
    if how == "folder":
        shutil.rmtree(path.parent)
    elif how == "empty":
        path.touch()
    elif how == "no table":
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE other (x)")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the ledger of a user lies who names none."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("DPSKETCH_LEDGER", raising=False)
    return tmp_path / "dpsketch" / "ledger.db"


def refuses(named: Callable[[], Ledger], path: Path) -> None:
    """Every use is refused and leaves the folder alone; to create a dataset says that a new ledger is meant."""
    before = sorted((each.name, each.read_bytes()) for each in path.parent.glob("*"))
    for use in USES.values():
        with pytest.raises(LedgerError, match=GONE):
            use(named())
        assert sorted((each.name, each.read_bytes()) for each in path.parent.glob("*")) == before
    named().create("web", epsilon=1.0, delta=0, unit=RECORD)
    assert named().datasets() == ["web"]


@pytest.mark.parametrize("how", ["missing", "folder", "empty", "no table"])
def test_a_ledger_that_is_gone_is_refused_and_not_begun_anew(how: str, tmp_path: Path) -> None:
    """A new one in its place would know no total, and refuse nothing."""
    path = tmp_path / "budget" / "budget.db"
    Ledger(path).create("web", epsilon=1.0, delta=0, unit=RECORD)
    lost(path, how)
    refuses(lambda: Ledger(path), path)


BEGINNINGS: dict[str, Callable[[Path], Any]] = {
    "charge": lambda home: Ledger.default().charge("web", [HALF], unit=RECORD),
    "create by name": lambda home: Ledger(home).create("web", epsilon=1.0, delta=0, unit=RECORD),
}


@pytest.mark.parametrize(("beginning", "how"), [("charge", "missing"), ("create by name", "empty")])
def test_the_ledger_of_the_home_folder_is_begun_once(how: str, beginning: str, home: Path) -> None:
    """The first release of a user needs no set-up; later, a ledger that is gone is refused like any other."""
    assert Ledger.default().datasets() == []
    assert Ledger.default().preview("web", [HALF], unit=RECORD).allowed
    assert not home.exists()
    BEGINNINGS[beginning](home)
    assert home.parent.stat().st_mode & 0o077 == 0  # for its owner's eyes
    lost(home, how)
    refuses(Ledger.default, home)


def test_where_nobody_names_a_folder_it_is_below_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that looked elsewhere would know of nothing that was spent."""
    for name in ("DPSKETCH_LEDGER", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    Ledger.default().charge("web", [HALF], unit=RECORD)
    assert (tmp_path / ".local/share/dpsketch/ledger.db").exists()


@pytest.mark.parametrize("use", [Ledger.datasets, USES["charge"]])
def test_every_use_notes_that_the_home_folder_has_a_ledger(use: Callable[[Ledger], Any], home: Path) -> None:
    """As after a restore that left the note out."""
    BEGINNINGS["charge"](home)
    home.with_name("ledger.db.begun").unlink()
    use(Ledger.default())
    lost(home, "missing")
    refuses(Ledger.default, home)


@pytest.mark.parametrize("how", [None, "empty"])
def test_a_ledger_that_the_environment_names_is_not_begun_by_a_charge(
    how: str | None, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever names a ledger may have created it under that name elsewhere, and lost it since."""
    path = tmp_path / "team" / "budget.db"
    if how:
        Ledger(path).create("web", epsilon=1.0, delta=0, unit=RECORD)
        lost(path, how)
    monkeypatch.setenv("DPSKETCH_LEDGER", f"sqlite:///{path}")
    refuses(Ledger.default, path)
    assert not home.exists()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can look into; those of pytest are the owner's alone."""
    with tempfile.TemporaryDirectory(prefix="dpsketch-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
        Path(folder).chmod(0o755)


def as_nobody(work: Callable[[], str]) -> str:
    """Return what some work says that is done without the rights of root, whom no mode of a file stops."""
    if os.geteuid() != 0:
        return work()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            said = work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said_there:
        found = said_there.read()
    os.waitpid(child, 0)
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # that there are threads, which the child does not use
@pytest.mark.parametrize("folder_mode", [0o555, 0o755])
def test_a_ledger_that_may_not_be_written_is_read(folder_mode: int, open_folder: Path) -> None:
    ledger = Ledger(open_folder / "budget.db")
    ledger.create("web", epsilon=2.0, delta=0, unit=RECORD)
    charge = ledger.charge("web", [HALF], unit=RECORD)
    (open_folder / "budget.db").chmod(0o444)
    open_folder.chmod(folder_mode)

    def asked() -> str:
        told = [ledger.datasets(), ledger.verify([charge]), len(ledger.history("web")), ledger.spent("web").words]
        return repr([*told, ledger.preview("web", [HALF], unit=RECORD).allowed])

    assert as_nobody(asked) == repr([["web"], [], 1, "ε=0.50 of 2.00 at δ=0 spent in 1 release", True])
    if os.geteuid() == 0 or folder_mode == 0o555:
        refused = as_nobody(lambda: str(ledger.charge("web", [HALF], unit=RECORD)))
        assert refused.startswith("LedgerError: ")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_without_the_right_to_write_no_charge_is_overlooked(open_folder: Path) -> None:
    """A charge that is in the log alone is read from there, or the reading is refused."""
    ledger = Ledger(open_folder / "budget.db")
    ledger.create("web", epsilon=2.0, delta=0, unit=RECORD)
    with closing(sqlite3.connect(open_folder / "budget.db")) as holding:  # its log stays
        holding.execute("SELECT count(*) FROM dpsketch_entry").fetchall()
        ledger.charge("web", [HALF], unit=RECORD)
        assert (open_folder / "budget.db-wal").stat().st_size > 0
        found = as_nobody(lambda: ledger.spent("web").words)
        assert "spent in 1 release" in found
        shutil.copytree(open_folder, open_folder / "left")
    (open_folder / "left" / "budget.db-shm").unlink()  # as after a power cut
    (open_folder / "left" / "budget.db").chmod(0o444)
    (open_folder / "left").chmod(0o555)
    left = Ledger(open_folder / "left" / "budget.db")
    found = as_nobody(lambda: left.spent("web").words)
    (open_folder / "left").chmod(0o755)
    assert "spent in 1 release" in found or "has changes in its log" in found


@pytest.mark.parametrize("name", ["WEB", "w eb", "ｗｅｂ", "web "])
def test_a_dataset_has_one_name(ledger: Ledger, name: str) -> None:
    """Another spelling would be another account, without the total of the first."""
    ledger.create("web", epsilon=1.0, delta=0, unit=RECORD)
    uses: list[Callable[[], Any]] = [
        lambda: ledger.charge(name, [HALF], unit=RECORD),
        lambda: ledger.create(name, epsilon=5.0, delta=0, unit=RECORD),
        lambda: ledger.preview(name, [HALF], unit=RECORD),
    ]
    for use in uses:
        with pytest.raises((LedgerError, InvalidInput), match=r"differs from 'web' only by case|begin nor end"):
            use()
    assert ledger.datasets() == ["web"]
    ledger.charge("webs", [HALF], unit=RECORD)  # which is another name
