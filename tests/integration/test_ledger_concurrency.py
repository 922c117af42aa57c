"""Many processes, one budget: on SQLite and on a real PostgreSQL, left alone and killed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dpsketch.errors import BudgetExceeded, LedgerError, ReleaseRefused
from dpsketch.ledger import Charge, Ledger, chain
from dpsketch.ledger.connection import Connection
from dpsketch.ledger.store import TABLES, LedgerStore
from dpsketch.privacy import PureCost, per_record
from ledgers import begun

WORKER = Path(__file__).with_name("ledger_worker.py")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/budget.db"
    return str(request.getfixturevalue("postgresql_url"))


def run(url: str, dataset: str, folder: Path, processes: int, charges: int, seconds: float) -> list[list[int]]:
    folder.mkdir()
    command = [sys.executable, WORKER, url, dataset, folder, processes, charges, seconds]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def releases(folder: Path) -> list[Charge]:
    return [Charge.from_json(json.loads(path.read_text())) for path in folder.glob("*.json")]


def test_sixteen_processes_never_spend_more_than_the_total(url: str, tmp_path: Path) -> None:
    """16 × 8 charges of 0.01 against a total of 1: exactly 100 are accepted, and each has its own row."""
    dataset = f"web {uuid.uuid4()}"
    ledger = Ledger(url)
    ledger.create(dataset, epsilon=1.0, delta=0, unit=per_record())
    counts = run(url, dataset, tmp_path / "releases", 16, 8, 0)
    assert len(counts) == 16
    assert sum(accepted for accepted, _ in counts) == 100
    assert sum(refused for _, refused in counts) == 28
    assert [entry.id for entry in ledger.history(dataset)] == list(range(1, 101))
    assert ledger.spent(dataset).epsilon == pytest.approx(1.0)
    found = releases(tmp_path / "releases")
    assert sorted(charge.id for charge in found) == list(range(1, 101))
    assert ledger.verify(found) == []
    with pytest.raises(BudgetExceeded):
        ledger.charge(dataset, [PureCost(0.01)], unit=per_record())


def test_every_release_of_a_killed_process_has_its_charge(url: str, tmp_path: Path) -> None:
    """Children die by SIGKILL at random moments for a second. A crash may over-charge; it never under-charges."""
    dataset = f"killed {uuid.uuid4()}"
    ledger = Ledger(url)
    ledger.create(dataset, epsilon=1.0, delta=0, unit=per_record())
    run(url, dataset, tmp_path / "releases", 8, 8, 1.0)
    found = releases(tmp_path / "releases")
    entries = ledger.history(dataset)
    assert len(found) > 10
    assert ledger.verify(found) == []
    assert len({charge.id for charge in found}) == len(found) <= len(entries) <= 100
    assert [entry.id for entry in entries] == list(range(1, len(entries) + 1))
    # No lock and no half-made row is left behind: whatever is left can be spent at once, and no more.
    for _ in range(100 - len(entries)):
        ledger.charge(dataset, [PureCost(0.01)], unit=per_record())
    with pytest.raises(BudgetExceeded):
        ledger.charge(dataset, [PureCost(0.01)], unit=per_record())


def charged(ledger: Ledger, dataset: str) -> bool:
    with suppress(BudgetExceeded):
        ledger.charge(dataset, [PureCost(0.01)], unit=per_record())
        return True
    return False


def test_whoever_waits_for_the_lock_is_never_overtaken(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock comes before the transaction and ends after it: no attempt sees less than what was committed."""
    dataset = f"waiting {uuid.uuid4()}"
    ledger = Ledger(postgresql_url)
    ledger.create(dataset, epsilon=0.2, delta=0, unit=per_record())
    real, attempts = LedgerStore._write_once, list[int]()

    def counted(self: LedgerStore, *given: Any) -> Any:
        attempts.append(1)
        return real(self, *given)

    monkeypatch.setattr(LedgerStore, "_write_once", counted)
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda _: charged(ledger, dataset), range(32))) == 20
    assert len(attempts) == 32
    assert ledger.spent(dataset).releases == 20


def test_a_transaction_that_failed_is_never_taken_for_committed(postgresql_url: str) -> None:
    """PostgreSQL answers its COMMIT with a ROLLBACK, and calls that no error."""
    dataset = f"failed {uuid.uuid4()}"
    ledger = Ledger(postgresql_url)
    ledger.create(dataset, epsilon=1.0, delta=0, unit=per_record())

    def work(connection: Connection) -> None:
        state = chain.read_state(connection, dataset)
        assert state is not None
        chain.append(connection, dataset, state.link, "charge", unit=per_record(), costs=[PureCost(0.5)])
        with suppress(connection.errors()):
            connection.run("SELECT * FROM nothing_of_that_name")

    with pytest.raises(LedgerError, match="Nothing was charged"):
        ledger._store.write(dataset, work)
    assert ledger.spent(dataset).releases == 0
    assert ledger.charge(dataset, [PureCost(0.5)], unit=per_record()).id == 1


def test_a_charge_outlives_a_crash_of_the_server_that_prefers_speed(postgresql_url: str) -> None:
    """A server, database or role may be set to answer a COMMIT before it is written; more than that is left alone."""
    Ledger(postgresql_url).create(f"begun {uuid.uuid4()}", epsilon=1.0, delta=0.0, unit=per_record())
    for setting, kept in (("off", "on"), ("local", "local"), ("on", "on"), ("remote_apply", "remote_apply")):
        store = LedgerStore(f"{postgresql_url}?options=-csynchronous_commit%3D{setting}")
        found = store.write("durable", lambda connection: connection.rows("SHOW synchronous_commit"))
        assert found == [(kept,)]


def test_a_session_leaves_nothing_to_the_next_client_of_a_pooler(postgresql_url: str) -> None:
    """Neither a prepared statement nor, once it ended, a lock."""
    Ledger(postgresql_url).create(f"begun {uuid.uuid4()}", epsilon=1.0, delta=0.0, unit=per_record())

    def work(connection: Connection) -> object:
        for _ in range(12):
            connection.insert(TABLES.sources, source=f"{uuid.uuid4()}", dataset="pooled")
        return connection.rows("SELECT count(*) FROM pg_prepared_statements")

    assert LedgerStore(postgresql_url).write("pooled", work) == [(0,)]
    with psycopg.connect(postgresql_url) as connection:
        locks = connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
        assert locks.fetchone() == (0,)


def test_a_transaction_that_lost_a_race_is_tried_again(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its lock, as behind a pooler that shares sessions, the isolation level alone keeps the budget."""
    dataset = f"pooled {uuid.uuid4()}"
    ledger = Ledger(postgresql_url)
    ledger.create(dataset, epsilon=0.2, delta=0, unit=per_record())
    real, meeting, own = LedgerStore._write_once, threading.Barrier(4), threading.local()
    attempts: list[int] = []

    def unlocked(self: Any, name: str, work: Callable[[Connection], Any], make: bool) -> Any:
        """Take the lock under a name nobody else uses; each thread's first transaction begins before any ends."""
        attempts.append(1)

        def after_meeting(connection: Connection) -> Any:
            connection.rows("SELECT count(*) FROM dpsketch_entry")
            if not getattr(own, "met", False):
                own.met = True
                meeting.wait(timeout=60)
            return work(connection)

        return real(self, f"{name} {uuid.uuid4()}", after_meeting, make)

    def refusals(_: int) -> int:
        return sum(not charged(ledger, dataset) for _ in range(6))

    monkeypatch.setattr(LedgerStore, "_write_once", unlocked)
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(refusals, range(4))) == 4
    # Of the four that began together one was committed.
    assert len(attempts) >= 24 + 3
    monkeypatch.undo()
    assert ledger.spent(dataset).releases == 20
    assert ledger.verify() == []


def test_of_several_sessions_that_charge_one_secret_one_may(postgresql_url: str) -> None:
    """Datasets have locks of their own, and each charge names another dataset: the table's key decides."""
    ledger, secret = begun(postgresql_url), str(uuid.uuid4())
    names = [f"copy {uuid.uuid4()}" for _ in range(8)]

    def charged(dataset: str) -> bool:
        try:
            ledger.charge(dataset, [PureCost(0.5)], unit=per_record(), once=[secret])
        except ReleaseRefused:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(charged, names)) == 1
    assert len(set(names) & set(ledger.datasets())) == 1
