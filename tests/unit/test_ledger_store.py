"""The database under a ledger: addresses, and what is left where a charge breaks off."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dpsketch.errors import InvalidInput, LedgerError
from dpsketch.ledger import Ledger, Payment
from dpsketch.ledger.connection import SqliteConnection
from dpsketch.ledger.store import LedgerStore
from dpsketch.privacy import PureCost, per_record

RECORD = per_record()
HALF = PureCost(0.5)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """Every session that is opened."""
    made: list[sqlite3.Connection] = []
    real = sqlite3.connect

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        made.append(real(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(sqlite3, "connect", connect)
    return made


@pytest.mark.parametrize(
    "change",
    [
        # Two rows that name one dataset, which no key of ours lets in: whichever came first would say how much is left.
        "CREATE TABLE loose AS SELECT * FROM dpsketch_dataset;"
        "INSERT INTO loose SELECT name, format, 1, head FROM dpsketch_dataset;"
        "DROP TABLE dpsketch_dataset; ALTER TABLE loose RENAME TO dpsketch_dataset",
        # A column of SQLite takes any type, whatever it was declared as.
        "UPDATE dpsketch_dataset SET name = x'776562'",
        "UPDATE dpsketch_entry SET dataset = x'776562' WHERE id = 1",
    ],
)
def test_rows_that_the_ledger_never_writes_are_refused(ledger: Ledger, tamper: Any, change: str) -> None:
    ledger.charge("web", [HALF], unit=RECORD)
    tamper(change)
    with pytest.raises(LedgerError, match="cannot be trusted"):
        ledger.charge("web", [HALF], unit=RECORD)
    if "loose" not in change:
        assert ledger.verify()


@pytest.mark.parametrize("table", ["dpsketch_once", "dpsketch_delivery", "dpsketch_member"])
def test_a_ledger_that_lost_a_table_is_refused_and_not_mended(ledger: Ledger, tamper: Any, table: str) -> None:
    """What the table held would be free again."""
    ledger.create("days", epsilon=1.0, delta=0, unit=RECORD, parts="day")
    ledger.charge("days", [HALF], unit=RECORD, part="2026-11-01", once=["secret"], partials=["one"])
    tamper(f"DROP TABLE {table}")
    with suppress(LedgerError):
        ledger.create("other", epsilon=1.0, delta=0, unit=RECORD)
    once = [] if table == "dpsketch_member" else ["secret"]
    with pytest.raises(LedgerError, match="no such table"):
        Payment(ledger, "x").charge("days", [HALF], unit=RECORD, part="2026-11-02", once=once, partials=["one"])
    with pytest.raises(LedgerError, match="no such table"):
        ledger.verify()


PLACES = {
    "postgresql://m%40e:p%40ss%2Fword%25@[2001:db8::1]:5433/b?connect_timeout=3": (
        "user=m@e password=p@ss/word% host=2001:db8::1 port=5433 dbname=b connect_timeout=3"
    ),
    "postgresql://me@a:1,b:2/b?password=secret": "user=me password=secret host=a,b port=1,2 dbname=b",
}


@pytest.mark.parametrize("url", PLACES)
def test_a_url_leads_to_a_server_and_shows_no_secret(url: str) -> None:
    store = LedgerStore(url)
    assert pickle.loads(pickle.dumps(store))._place == store._place == dict(x.split("=") for x in PLACES[url].split())
    assert ":***" in str(store)
    assert not any(secret in str(store) for secret in ("secret", "ss", "word"))


def test_a_server_that_does_not_answer_is_told_without_its_password() -> None:
    with pytest.raises(LedgerError, match="could not be used") as caught:
        Ledger("postgresql://me:secret@127.0.0.1:1/db").charge("web", [HALF], unit=RECORD)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


FILES = {
    "sqlite:///a%25b%3Fc.db": "a%b?c.db",
    "sqlite:///~/a.db": "~/a.db",
    "file:a.db": "file:a.db",
    "dép\udcff.db": "dép\udcff.db",
}


@pytest.mark.parametrize("url", FILES)
def test_a_url_leads_to_a_file(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    ledger = Ledger(url)
    monkeypatch.chdir("/")
    ledger.create("web", epsilon=1.0, delta=0, unit=RECORD)
    assert (tmp_path / Path(FILES[url]).expanduser()).exists()
    assert pickle.loads(pickle.dumps(ledger)).datasets() == ["web"]


REFUSED = {
    "mysql://host/db": "a ledger is a path, sqlite:///path or postgresql://user@host/database.",
    "postgresql://me:p@secret@host/db": "An '@', a '/' or a '%' in a user or a password",
    "postgresql://me:12/secret@host/db": "An '@', a '/' or a '%' in a user or a password",
    "postgresql://me:secret@127.0.0.1:1/db?autocommit=false": "options that PostgreSQL knows",
    "sqlite:///:memory:": "a ledger must outlive the process",
    "": "a ledger",
}


@pytest.mark.parametrize("url", REFUSED)
def test_an_address_that_is_none_is_refused_in_words(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Ledger(url)
    assert REFUSED[url] in str(caught.value)
    assert "secret" not in str(caught.value)


def breaking(name: str, error: BaseException, *, after: bool) -> Callable[..., Any]:
    real = getattr(SqliteConnection, name)

    def broken(self: SqliteConnection, *arguments: Any, **options: Any) -> Any:
        if after:
            real(self, *arguments, **options)
        raise error

    return broken


@pytest.mark.parametrize("error", [KeyboardInterrupt(), sqlite3.OperationalError("disk I/O error")])
@pytest.mark.parametrize("step", ["insert", "_commit"])
def test_a_charge_that_breaks_off_before_its_commit_leaves_nothing(
    ledger: Ledger, opened: list[sqlite3.Connection], step: str, error: BaseException
) -> None:
    """The row is written and undone, the session is closed, and the next one charges at once."""
    ledger.create("web", epsilon=1.0, delta=0, unit=RECORD)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteConnection, step, breaking(step, error, after=step == "insert"))
        wanted = LedgerError if isinstance(error, sqlite3.Error) else type(error)
        with pytest.raises(wanted) as caught:
            ledger.charge("web", [PureCost(1.0)], unit=RECORD)
    for session in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            session.execute("SELECT 1")
    assert caught.value.__cause__ is None
    assert ledger.spent("web").releases == 0
    assert ledger.charge("web", [PureCost(1.0)], unit=RECORD).id == 1
    assert ledger.verify() == []


def test_a_charge_whose_commit_is_in_doubt_is_not_made_again(ledger: Ledger) -> None:
    """The session breaks just after the commit: the caller draws nothing, and the charge stands, once."""
    ledger.create("web", epsilon=1.0, delta=0, unit=RECORD)
    lost = sqlite3.OperationalError("disk I/O error")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteConnection, "_commit", breaking("_commit", lost, after=True))
        with pytest.raises(LedgerError, match="could not be used: disk I/O error"):
            ledger.charge("web", [PureCost(0.25)], unit=RECORD)
    assert ledger.spent("web").releases == 1
