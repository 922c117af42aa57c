"""The database under a ledger: ledgers of earlier versions, addresses, and what is left where a charge breaks off."""

from __future__ import annotations

import pickle
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from dpsketch.cli.delivery import _origin
from dpsketch.errors import BudgetExceeded, InvalidInput, LedgerError, ReleaseRefused
from dpsketch.ledger import Charge, Ledger, Payment, book
from dpsketch.ledger.connection import Connection, SqliteConnection
from dpsketch.ledger.layout import TABLES
from dpsketch.ledger.store import Store
from dpsketch.privacy import GaussianCost, PureCost, per_record, per_user

RECORD = per_record()
# Written through SQLAlchemy, which ledgers once stood on: every table, both layouts, open charges and closed ones.
VECTOR = Path(__file__).parents[1] / "vectors" / "ledger.sql"
HALF = PureCost(0.5)


@pytest.fixture
def earlier(path: Path) -> Ledger:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(VECTOR.read_text())
    return Ledger(path)


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


def is_closed(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return True
    return False


def test_a_ledger_of_an_earlier_version_is_read(earlier: Ledger) -> None:
    assert earlier.datasets() == ["days", "late", "nobody's", "web"]
    web = earlier.history("web")
    assert [entry.costs[0] for entry in web] == [
        GaussianCost(0.3),
        PureCost(0.125),
        PureCost(0.0625),
        PureCost(0.03125),
    ]
    assert [entry.written for entry in web] == [None, None, True, False]
    assert web[0].note == "searches in May; naïve 'quotes' \"and\" 文字"
    assert web[2].origin is not None
    assert (web[2].origin.output, web[2].origin.columns, web[2].origin.who) == ("out.dps", "key url", "ana")
    assert [entry.part for entry in earlier.history("days")] == ["2026-11-01", "2026-11-02"]
    assert earlier.spent("days").epsilon == 0.5
    assert earlier.spent("web").epsilon == pytest.approx(1.4672033817150054)
    assert earlier.named_sources() == {"digest of a place": "web"}
    stream = Charge("web", 1, web[0].digest)
    assert earlier.last_day(stream) == (2, "cd" * 32)
    charges = [Charge(name, entry.id, entry.digest) for name in earlier.datasets() for entry in earlier.history(name)]
    assert len(charges) == 7
    assert earlier.verify(charges) == []


def test_a_ledger_of_an_earlier_version_is_charged_on(earlier: Ledger) -> None:
    """Its open charge is taken up, its closed one is not; what was released once or as a part stays so."""
    payment = Payment(earlier, "open")
    assert payment.charge("web", [PureCost(0.03125)], unit=RECORD, note="open").id == 4
    assert payment.resumed
    payment.close()
    again = Payment(earlier, "written")
    assert again.charge("web", [PureCost(0.0625)], unit=RECORD).id == 5
    assert not again.resumed
    with pytest.raises(ReleaseRefused, match="was charged before"):
        earlier.charge("nobody's", [HALF], unit=RECORD, once=["secret"])
    user = per_user(max_keys=3)
    with pytest.raises(ReleaseRefused, match="released as part '2026-11-01'"):
        earlier.charge("days", [HALF], unit=user, part="2026-11-02", partials=["two"])
    earlier.charge("days", [HALF], unit=user, part="2026-11-01", partials=["two"])
    with pytest.raises(BudgetExceeded):
        earlier.charge("days", [PureCost(0.01)], unit=user, part="2026-11-01")
    stream = Charge("web", 1, earlier.history("web")[0].digest)
    with pytest.raises(ReleaseRefused, match="other noise"):
        earlier.record_day(stream, 2, "ef" * 32)
    earlier.record_day(stream, 3, "ef" * 32)
    earlier.name_source("digest of a place", "days")
    assert earlier.named_sources() == {"digest of a place": "days"}
    assert earlier.verify() == []


def test_tables_are_those_of_earlier_versions(path: Path, ledger: Ledger, tmp_path: Path) -> None:
    """Columns, types, what may be null and keys: an earlier version opens what this one writes."""
    ledger.charge("web", [HALF], unit=RECORD)
    found = []
    for file in (path, tmp_path / "earlier.db"):
        with closing(sqlite3.connect(file)) as connection:
            if file != path:
                connection.executescript(VECTOR.read_text())
            names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
            found.append({name: connection.execute(f"PRAGMA table_info({name})").fetchall() for (name,) in names})
    assert found[0] == found[1]
    assert len(found[0]) == len(TABLES) == 8


def test_two_rows_that_name_one_dataset_are_refused(path: Path) -> None:
    """No key of ours lets them in. Whichever of them came first would say how much is left."""
    with closing(sqlite3.connect(path)) as connection:
        script = VECTOR.read_text().replace("PRIMARY KEY (name)", "CHECK (1)")
        connection.executescript(script)
        connection.execute("INSERT INTO dpsketch_dataset SELECT name, format, 3, head FROM dpsketch_dataset")
        connection.commit()
    for use in (lambda: Ledger(path).spent("web"), lambda: Ledger(path).charge("web", [HALF], unit=RECORD)):
        with pytest.raises(LedgerError, match="cannot be trusted"):
            use()


SERVERS = [
    "postgresql://host/budget", "postgres://host/budget", "postgresql+psycopg://host/budget",
    "postgresql+psycopg2://me@host/budget", "postgresql://", "postgresql:///budget", "postgresql://me@/budget",
    "postgresql://me:secret@host:5433/budget", "postgresql://me:p%40ss%2Fword%3A%25@host/budget",
    "postgresql://me:p/a?s:s+w ord@host/budget", "postgresql://m%40e%3A:secret@host/budget",
    "postgresql://me@work@host/budget", "postgresql://:secret@host/budget",
    "postgresql://me:secret@[2001:db8::1]:5433/budget", "postgresql://[::1]/budget",
    "postgresql://host/budget?sslmode=verify-full&sslrootcert=/etc/a%20b.pem&connect_timeout=3",
    "postgresql:///budget?host=/run/postgresql", "postgresql://:5433/budget?host=/run/postgresql",
    "postgresql://host/budget?host=other&port=5434", "postgresql://host/budget?host=other:5434",
    "postgresql://host:5433/budget?host=a,b", "postgresql:///budget?host=a,b&port=1,2",
    "postgresql:///budget?host=a:1&host=b:2", "postgresql:///budget?user=you&password=secret",
    "postgresql://me@host/budget?options=-csearch_path%3Dours", "postgresql://host/budget?application_name=",
    "postgresql://host?dbname=budget", "postgresql://host/a/b", "postgresql:///budget?host=:5433",
    "postgresql://host/budget?host=:", "postgresql://host:5433/budget?host=a&host=b", "postgresql:///budget?host=a,b,c",
]  # fmt: skip


@pytest.mark.parametrize("url", SERVERS)
def test_a_url_leads_to_the_database_that_it_always_led_to(url: str) -> None:
    """Ledgers were once opened by SQLAlchemy, which says here what a URL means to PostgreSQL's driver."""
    _, wanted = PGDialect_psycopg().create_connect_args(make_url(url).set(drivername="postgresql+psycopg"))
    assert Store(url)._options == {name: str(value) for name, value in wanted.items()}


@pytest.mark.parametrize("url", SERVERS)
def test_an_address_shows_no_secret(url: str) -> None:
    shown = str(Store(url))
    assert not any(secret in shown for secret in ("secret", "ss", "word", "s+w"))
    assert shown.startswith("postgresql://")
    assert ":***" in shown or "password" not in Store(url)._options


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("sqlite:///a.db", "a.db"),
        ("sqlite:///in/a folder/a.db", "in/a folder/a.db"),
        ("sqlite:///a%20b.db", "a b.db"),
        ("sqlite:///a%25b%3Fc.db", "a%b?c.db"),
        ("sqlite:///a+b:c@d.db", "a+b:c@d.db"),
        ("sqlite:///a.db?timeout=5", "a.db"),
        ("sqlite+pysqlite:///a.db", "a.db"),
        ("sqlite:////tmp/a.db", "/tmp/a.db"),
        ("sqlite:///~/a.db", "~/a.db"),
        ("a?b%20c.db", "a?b%20c.db"),
        ("in/../a.db", "a.db"),
        ("~/a.db", "~/a.db"),
    ],
)
def test_a_url_leads_to_the_file_that_it_always_led_to(
    url: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Store(url).file == tmp_path / Path(file).expanduser()
    if "://" in url and "%" not in url:  # which not all versions of SQLAlchemy decode
        assert Path(make_url(url).database or "").expanduser() == Path(file).expanduser()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://host/db", "a ledger is a SQLite file or a PostgreSQL database, not 'mysql'."),
        ("POSTGRESQL://host/db", "not 'POSTGRESQL'."),
        ("post-gres://host/db", "a ledger is a path, sqlite:///path or postgresql://user@host/database."),
        ("postgresql://host:port/db", "a port in a ledger's URL is a number"),
        ("postgresql://me:p@ss@host/db", "a password in a ledger's URL has its '@' written as %40"),
        ("postgresql://host/db?sslmode=a&sslmode=b", "states 'sslmode' more than once"),
        ("sqlite://a.db", "a ledger must outlive the process"),
    ],
)
def test_an_address_that_is_none_is_refused_in_words(url: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Ledger(url)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["a b.db", "a?b.db", "a%20b.db", "a#b.db", "file:a.db", "a;b'c\".db", "dép\udcff.db"])
def test_a_ledger_is_kept_under_any_name_and_found_by_its_copy(name: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / name)
    ledger.create("web", epsilon=1.0, delta=0, unit=RECORD)
    assert (tmp_path / name).exists()
    assert pickle.loads(pickle.dumps(ledger)).datasets() == ["web"]


def test_a_copy_reaches_a_server_with_its_password() -> None:
    store = Store("postgresql://me:p%40ss@host/budget?sslmode=require")
    assert pickle.loads(pickle.dumps(store))._options == store._options
    assert store._options["password"] == "p@ss"


def test_a_server_needs_a_driver_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(LedgerError, match=r"needs psycopg: pip install 'dpsketch\[postgres\]'"):
        Ledger("postgresql://host/budget").datasets()


def test_an_option_that_a_server_does_not_know_is_told_without_the_password() -> None:
    with pytest.raises(LedgerError, match="could not be used") as caught:
        Ledger("postgresql://me:secret@127.0.0.1:1/db?autocommit=false").datasets()
    assert "secret" not in str(caught.value)


def breaking(name: str, error: BaseException, *, after: bool) -> Callable[..., Any]:
    real = getattr(SqliteConnection, name)

    def broken(self: SqliteConnection, *arguments: Any, **options: Any) -> Any:
        if after:
            real(self, *arguments, **options)
        raise error

    return broken


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), sqlite3.OperationalError("disk I/O error")])
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
    assert all(map(is_closed, opened))
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


def test_a_session_is_closed_whatever_was_asked(ledger: Ledger, opened: list[sqlite3.Connection], path: Path) -> None:
    ledger.charge("web", [HALF], unit=RECORD)
    ledger.spent("web")
    with pytest.raises(LedgerError):
        ledger.spent("other")
    with pytest.raises(UnicodeEncodeError):
        ledger.spent("\ud800")
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(LedgerError):
        ledger.spent("web")
    assert len(opened) >= 5
    assert all(map(is_closed, opened))


def test_a_name_that_no_disk_takes_is_refused_in_a_sentence(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / ("a" * 300))
    for use in (ledger.datasets, lambda: ledger.charge("web", [HALF], unit=RECORD)):
        with pytest.raises(LedgerError, match="could not be used"):
            use()


def charge_until_refused(ledger: Ledger) -> None:
    for _ in range(50):
        ledger.charge("web", [HALF], unit=RECORD, note="x" * 900)


def test_a_disk_that_is_full_refuses_a_charge_and_keeps_the_rest(ledger: Ledger) -> None:
    ledger.charge("web", [HALF], unit=RECORD)

    class Full(SqliteConnection):
        def __init__(self, file: Path) -> None:
            super().__init__(file)
            ((pages,),) = self.rows("PRAGMA page_count")
            self.rows(f"PRAGMA max_page_count = {pages}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "_open", lambda store, *, make: Full(store.file))
        with pytest.raises(LedgerError, match="database or disk is full"):
            charge_until_refused(ledger)
    held = len(ledger.history("web"))
    assert ledger.verify() == []
    assert ledger.charge("web", [HALF], unit=RECORD).id == held + 1


def test_a_ledger_that_another_holds_is_waited_for_and_then_refused(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpsketch.ledger import connection

    ledger.charge("web", [HALF], unit=RECORD)
    monkeypatch.setattr(connection, "_PATIENCE", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="database is locked"):
            ledger.charge("web", [HALF], unit=RECORD)
        assert ledger.spent("web").releases == 1  # a reader waits for nobody
    assert ledger.charge("web", [HALF], unit=RECORD).id == 2


def test_a_file_that_another_holds_becomes_no_ledger(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpsketch.ledger import connection

    monkeypatch.setattr(connection, "_PATIENCE", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE other (x)")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerError, match="database is locked"):
            Ledger(path).charge("web", [HALF], unit=RECORD)


def test_a_charge_is_committed_when_its_caller_hears_of_it(ledger: Ledger, path: Path) -> None:
    """Seen by a session that never knew of the first."""
    charge = ledger.charge("web", [HALF], unit=RECORD)
    with closing(sqlite3.connect(path)) as other:
        rows = other.execute("SELECT id, digest FROM dpsketch_entry WHERE kind = 'charge'").fetchall()
    assert rows == [(charge.id, charge.digest)]


def test_what_decides_a_charge_is_read_under_its_lock(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From when a charge looks at what was spent until it is committed nobody else writes, nor sees its row."""
    ledger.create("web", epsilon=1.0, delta=0, unit=RECORD)
    seen = []
    real, read_state = book.append, book.read_state

    def look() -> None:
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
            seen.append(other.execute("SELECT count(*) FROM dpsketch_entry").fetchone())
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("BEGIN IMMEDIATE")

    def append(connection: Connection, *arguments: Any, **options: Any) -> Any:
        link = real(connection, *arguments, **options)
        look()
        return link

    def state(connection: Connection, dataset: str) -> Any:
        look()
        return read_state(connection, dataset)

    monkeypatch.setattr(book, "append", append)
    monkeypatch.setattr(book, "read_state", state)
    ledger.charge("web", [HALF], unit=RECORD)
    assert seen == [(1,), (1,)]


def test_a_name_that_is_used_up_twice_by_one_charge_is_used_up_once(ledger: Ledger) -> None:
    assert ledger.charge("web", [HALF], unit=RECORD, once=["a", "b", "a"]).id == 1
    with pytest.raises(ReleaseRefused, match="was charged before"):
        ledger.charge("other", [HALF], unit=RECORD, once=["a"])


def test_more_names_than_a_statement_holds_are_looked_for(ledger: Ledger) -> None:
    names = [str(number) for number in range(1200)]
    ledger.charge("web", [HALF], unit=RECORD, once=names[-1:])
    with pytest.MonkeyPatch.context() as patch:
        real = SqliteConnection._execute

        def limited(self: SqliteConnection, statement: str, values: Any = ()) -> Any:
            if len(values) > 999:
                raise sqlite3.OperationalError("too many SQL variables")
            return real(self, statement, values)

        patch.setattr(SqliteConnection, "_execute", limited)
        with pytest.raises(ReleaseRefused, match="was charged before"):
            ledger.charge("web", [HALF], unit=RECORD, once=names)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE dpsketch_dataset SET rows = 'x'",
        "UPDATE dpsketch_dataset SET name = x'776562'",
        "UPDATE dpsketch_entry SET dataset = x'776562' WHERE id = 1",
    ],
)
def test_a_row_of_another_type_is_named_and_never_used(ledger: Ledger, path: Path, change: str) -> None:
    """A column of SQLite takes any type, whatever it was declared as."""
    ledger.charge("web", [HALF], unit=RECORD)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(change)
        connection.commit()
    assert ledger.verify()
    with pytest.raises(LedgerError, match="cannot be trusted"):
        ledger.charge("web", [HALF], unit=RECORD)


def test_a_reader_that_was_overtaken_reads_again(ledger: Ledger) -> None:
    """As one is whom PostgreSQL ends to resolve a deadlock, or a server that follows another one."""
    ledger.charge("web", [HALF], unit=RECORD)

    class Overtaken(sqlite3.OperationalError):
        sqlstate = "40001"

    failures = [Overtaken("canceling statement due to conflict with recovery")] * 2
    real = SqliteConnection.has_table

    def has_table(self: SqliteConnection, table: Any) -> bool:
        if failures:
            raise failures.pop()
        return real(self, table)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteConnection, "has_table", has_table)
        assert ledger.datasets() == ["web"]


def test_numbers_that_no_database_holds_are_refused_in_words(ledger: Ledger) -> None:
    charge = ledger.charge("web", [HALF], unit=RECORD)
    for number in (2**63, -1):
        with pytest.raises(InvalidInput, match="a charge has"):
            Charge.from_json({"dataset": "web", "id": number, "digest": charge.digest})
    with pytest.raises(InvalidInput, match="day"):
        ledger.record_day(charge, 2**63, "ab")


def test_a_release_may_go_to_a_file_whose_name_is_no_text(ledger: Ledger) -> None:
    payment = Payment(ledger, "binding", _origin(Path("out\udcff.dps"), "key url"))
    assert payment.charge("web", [HALF], unit=RECORD).id == 1
    (entry,) = ledger.history("web")
    assert entry.origin is not None
    assert entry.origin.output == "out\\udcff.dps"
