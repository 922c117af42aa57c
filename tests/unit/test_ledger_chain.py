"""Rows that were altered, moved, deleted or forged: what verify names, and what is refused."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dpsketch.errors import LedgerError
from dpsketch.ledger import Charge, Ledger
from dpsketch.ledger.store import row_digest
from dpsketch.privacy import PureCost, per_record
from ledgers import begun

RECORD = per_record()
Tamper = Callable[[str], None]


@pytest.fixture
def chained(ledger: Ledger) -> list[Charge]:
    """A dataset with five charges, next to another that must never be blamed."""
    ledger.create("web", epsilon=5.0, delta=0, unit=RECORD)
    ledger.charge("other", [PureCost(1.0)], unit=RECORD)
    charges = [ledger.charge("web", [PureCost(0.1 * n)], unit=RECORD, note=f"n{n}") for n in range(1, 6)]
    assert ledger.verify(charges) == []
    return charges


WEB = "WHERE dataset = 'web' AND id"


@pytest.mark.parametrize(
    ("row", "column", "value"),
    [
        (1, "costs", '\'[{"epsilon":0.01,"kind":"pure"}]\''),
        (5, "costs", '\'[{"epsilon":0.01,"kind":"pure"}]\''),
        (0, "total", "replace(total, '5.0', '500.0')"),
        (3, "note", "'something else'"),
        (3, "time", "'2020-01-01T00:00:00.000000+00:00'"),
        (3, "unit", "'{}'"),
        (3, "kind", "'total'"),
        (3, "previous", "'0'"),
        (3, "digest", "'0'"),
        (3, "note", "x'00ff'"),
        (3, "time", "9e999"),
        (3, "id", "'three'"),
    ],
)
def test_no_budget_is_read_off_an_altered_row(
    ledger: Ledger, tamper: Tamper, chained: list[Charge], row: int, column: str, value: str
) -> None:
    """Whichever row it is: the total, the first charge, one in the middle, the last."""
    tamper(f"UPDATE dpsketch_entry SET {column} = {value} {WEB} = {row}")
    problems = ledger.verify()
    assert {problem.dataset for problem in problems} == {"web"}
    if column != "id":
        assert f"dataset 'web', row {row}: " in str(problems[0])
        # Only the altered row is blamed, unless its digest was, which the next row was built on.
        assert {problem.id for problem in problems} <= ({row, row + 1} if column == "digest" else {row})
    for use in (ledger.charge, ledger.preview):
        with pytest.raises(LedgerError, match="cannot be trusted"):
            use("web", [PureCost(0.1)], unit=RECORD)
    with pytest.raises(LedgerError, match="cannot be trusted"):
        ledger.spent("web")
    assert ledger.charge("other", [PureCost(0.1)], unit=RECORD).id == 2


@pytest.mark.parametrize(("which", "missed"), [("= 0", [0]), ("= 3", [3]), (">= 4", [4, 5])])
def test_a_deleted_row_is_named(
    ledger: Ledger, tamper: Tamper, chained: list[Charge], which: str, missed: list[int]
) -> None:
    tamper(f"DELETE FROM dpsketch_entry {WEB} {which}")
    problems = ledger.verify()
    assert [(problem.dataset, problem.id) for problem in problems] == [("web", row) for row in missed]
    assert "deleted" in str(problems[0])
    with pytest.raises(LedgerError, match="ledger verify"):
        ledger.charge("web", [PureCost(0.1)], unit=RECORD)


COPIED = "dataset, 6, kind, time, costs, total, unit, note, previous, digest"


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        (f"INSERT INTO dpsketch_entry SELECT {COPIED} FROM dpsketch_entry {WEB} = 5", 6),
        ("UPDATE dpsketch_dataset SET head = 'x' WHERE name = 'web'", 5),
        ("DELETE FROM dpsketch_dataset WHERE name = 'web'", None),
        ("UPDATE dpsketch_dataset SET format = 3 WHERE name = 'web'", None),
    ],
)
def test_an_added_row_and_a_changed_list_of_datasets_are_named(
    ledger: Ledger, tamper: Tamper, chained: list[Charge], statement: str, named: int | None
) -> None:
    tamper(statement)
    if "format" not in statement:
        assert ("web", named) in [(problem.dataset, problem.id) for problem in ledger.verify()]
    with pytest.raises(LedgerError, match="later version" if "format" in statement else "cannot be trusted"):
        ledger.charge("web", [PureCost(0.1)], unit=RECORD)


@pytest.mark.parametrize("row", [1, 3])
def test_a_row_that_was_rewritten_with_its_digest_is_named_by_the_next(
    ledger: Ledger, path: Path, tamper: Tamper, chained: list[Charge], row: int
) -> None:
    """Its own digest is right again; the row after it still speaks of the row that was there."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        stored = dict(connection.execute(f"SELECT * FROM dpsketch_entry {WEB} = {row}").fetchone())
    stored["costs"] = '[{"epsilon":0.01,"kind":"pure"}]'
    tamper(f"UPDATE dpsketch_entry SET costs = '{stored['costs']}', digest = '{row_digest(stored)}' {WEB} = {row}")
    (problem,) = ledger.verify()
    assert problem.id == row + 1
    assert "does not follow" in str(problem)
    with pytest.raises(LedgerError, match="cannot be trusted"):
        ledger.charge("web", [PureCost(0.1)], unit=RECORD)


def test_a_forged_chain_is_given_away_by_the_releases(ledger: Ledger, path: Path, chained: list[Charge]) -> None:
    """Someone rewrites the whole file consistently; what release files carry no longer matches."""
    path.unlink()
    for left_over in path.parent.glob("budget.db-*"):
        left_over.unlink()
    forged = Ledger(path)
    forged.create("web", epsilon=5.0, delta=0, unit=RECORD)
    for _ in range(3):
        forged.charge("web", [PureCost(0.01)], unit=RECORD)
    assert forged.verify() == []
    problems = forged.verify([Charge.from_json(json.loads(json.dumps(charge.to_json()))) for charge in chained])
    assert [problem.id for problem in problems] == [1, 2, 3, 4, 5]
    assert "differs" in str(problems[0])
    assert "missing" in str(problems[4])
    other = begun(path.parent / "other.db").verify(chained)
    assert [problem.id for problem in other] == [1, 2, 3, 4, 5]
    assert all("its file was replaced" in str(problem) for problem in other)
