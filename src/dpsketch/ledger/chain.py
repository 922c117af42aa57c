"""A dataset's rows: an append-only chain in which each row's digest covers the row before it.

Row 0 creates the dataset, with its unit and perhaps its total. A later row sets the total of a dataset that had none,
or is a charge. The dataset's own row holds the chain's length and its last digest, so that rows missing at the end show
as well. It is updated in the transaction that adds a row.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dpsketch.errors import LedgerError
from dpsketch.ledger import delivery, singles
from dpsketch.ledger.store import tables
from dpsketch.ledger.values import Charge, Entry, Kind, Problem, Total, canonical, row_digest
from dpsketch.privacy import Cost, Unit, cost_from_json, cost_to_json

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["Link", "State", "append", "find_problems", "read_entries", "read_names", "read_state"]

# The layout of the tables; a ledger of a later layout is refused.
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Link:
    """Where a chain ends: how many rows it has, and the last one's digest."""

    rows: int
    head: str


@dataclass(frozen=True, slots=True)
class State:
    """A dataset as its rows tell: its budget, and its charges counted by what they cost."""

    link: Link
    unit: Unit
    total: Total | None
    costs: Counter[Cost]
    releases: int


def append(
    connection: Connection,
    dataset: str,
    link: Link | None,
    kind: Kind,
    *,
    unit: Unit,
    total: Total | None = None,
    costs: Sequence[Cost] = (),
    note: str = "",
) -> Link:
    """Add a row to a chain, or begin one; return its new end."""
    datasets, entries, *_ = tables()
    row = {
        "dataset": dataset,
        "id": 0 if link is None else link.rows,
        "kind": kind,
        "time": datetime.now(UTC).isoformat(timespec="microseconds"),
        "costs": canonical([cost_to_json(cost) for cost in costs]),
        "total": canonical(None if total is None else total.to_json()),
        "unit": canonical(unit.to_json()),
        "note": note,
        "previous": "" if link is None else link.head,
    }
    end = Link(1 if link is None else link.rows + 1, row_digest(row))
    connection.execute(entries.insert().values(**row, digest=end.head))
    if link is None:
        connection.execute(datasets.insert().values(name=dataset, format=_FORMAT, rows=end.rows, head=end.head))
    else:
        own = (datasets.c.name == dataset) & (datasets.c.head == link.head)
        if connection.execute(datasets.update().where(own).values(rows=end.rows, head=end.head)).rowcount != 1:
            raise LedgerError(f"dataset {dataset!r} changed while it was charged. Nothing was charged; try again.")
    return end


def read_names(connection: Connection) -> list[str]:
    """Return the datasets' names, in order."""
    from sqlalchemy import select

    return sorted(connection.execute(select(tables()[0].c.name)).scalars())


def read_entries(connection: Connection, dataset: str) -> list[Entry]:
    """Return a dataset's charges, oldest first."""
    rows = _rows(connection, dataset)
    written = delivery.read_written(connection, dataset)
    with _parsing(dataset):
        return [_entry(row, written.get(row["id"])) for row in rows if row["kind"] == "charge"]


def read_state(connection: Connection, dataset: str) -> State | None:
    """Return what a dataset's rows add up to; None where the ledger does not know it.

    All of its chain is checked first, as :func:`find_problems` does: whatever a charge is decided by was written by a
    ledger. That reads every row: some tenths of a second for 10,000 of them.
    """
    from sqlalchemy import select

    datasets = tables()[0]
    own = connection.execute(select(datasets).where(datasets.c.name == dataset)).mappings().one_or_none()
    if own is not None and own["format"] != _FORMAT:
        raise LedgerError(f"dataset {dataset!r} was written by a later version of dpsketch. Upgrade to use its ledger.")
    rows = _rows(connection, dataset)
    if own is None:
        if rows:
            raise _damaged(dataset)
        return None
    if _chain_problems(dataset, rows) or _end_problems(dataset, rows, own["rows"], own["head"]):
        raise _damaged(dataset)
    with _parsing(dataset):
        charged = Counter(row["costs"] for row in rows if row["kind"] == "charge")
        costs: Counter[Cost] = Counter()
        for text, times in charged.items():
            for cost in _costs(text):
                costs[cost] += times
        settings = [row for row in rows if row["kind"] != "charge"]
        return State(
            Link(own["rows"], own["head"]),
            Unit.from_json(json.loads(settings[0]["unit"])),
            _total(settings[-1]["total"]),
            costs,
            charged.total(),
        )


def find_problems(connection: Connection, charges: Iterable[Charge]) -> list[Problem]:
    """Return everything in the ledger that is not as it was written, and every charge that it does not hold."""
    from sqlalchemy import select

    datasets, entries, *_ = tables()
    heads = {row["name"]: row for row in connection.execute(select(datasets)).mappings()}
    names = sorted({*heads, *connection.execute(select(entries.c.dataset).distinct()).scalars()})
    problems: list[Problem] = []
    digests: dict[tuple[str, int], str] = {}
    for name in names:
        rows = _rows(connection, name)
        digests.update({(name, row["id"]): row["digest"] for row in rows})
        problems += _chain_problems(name, rows)
        if name in heads:
            problems += _end_problems(name, rows, heads[name]["rows"], heads[name]["head"])
        else:
            problems.append(Problem(name, None, "was deleted from the list of datasets, but its rows are there."))
    problems += delivery.find_problems(connection, digests)
    problems += singles.find_problems(connection, digests)
    for charge in charges:
        found = digests.get((charge.dataset, charge.id))
        if found is None:
            problems.append(Problem(charge.dataset, charge.id, "a release was charged as this row, and it is missing."))
        elif found != charge.digest:
            problems.append(Problem(charge.dataset, charge.id, "differs from the row that a release was charged as."))
    return problems


def _chain_problems(name: str, rows: list[dict[str, Any]]) -> list[Problem]:
    problems: list[Problem] = []
    expected = 0
    before: dict[str, Any] | None = None
    for row in rows:
        if not isinstance(row["id"], int):
            problems.append(Problem(name, None, "has a row whose number was altered."))
            continue
        problems += [Problem(name, gap, "is missing: it was deleted.") for gap in range(expected, row["id"])]
        unbroken = row["id"] == expected
        if row["digest"] != row_digest(row):
            problems.append(Problem(name, row["id"], "was altered or moved: its digest is not that of its content."))
        elif unbroken and row["previous"] != ("" if before is None else before["digest"]):
            problems.append(Problem(name, row["id"], "does not follow the row before it: one of the two was replaced."))
        expected, before = row["id"] + 1, row
    return problems


def _end_problems(name: str, rows: list[dict[str, Any]], count: int, head: str) -> list[Problem]:
    rows = [row for row in rows if isinstance(row["id"], int)]
    found = rows[-1]["id"] + 1 if rows else 0
    if found < count:
        return [Problem(name, gap, "is missing: it was deleted.") for gap in range(found, count)]
    if found > count:
        return [Problem(name, extra, "was added by something else than a ledger.") for extra in range(count, found)]
    if rows and rows[-1]["digest"] != head:
        return [Problem(name, rows[-1]["id"], "is not the row that the dataset ended with: it was replaced.")]
    return []


def _rows(connection: Connection, dataset: str) -> list[dict[str, Any]]:
    from sqlalchemy import select

    entries = tables()[1]
    query = select(entries).where(entries.c.dataset == dataset).order_by(entries.c.id)
    names = entries.c.keys()
    return [dict(zip(names, row, strict=True)) for row in connection.execute(query)]


def _entry(row: dict[str, Any], written: bool | None) -> Entry:
    unit = Unit.from_json(json.loads(row["unit"]))
    costs = _costs(row["costs"])
    return Entry(row["dataset"], row["id"], row["time"], costs, unit, row["note"], row["digest"], written)


def _costs(text: str) -> tuple[Cost, ...]:
    return tuple(cost_from_json(cost) for cost in json.loads(text, parse_int=_whole))


def _whole(digits: str) -> float:
    # Ledgers of earlier versions may hold a cost that no float does. It stays there, and is without end.
    return int(digits) if len(digits) <= sys.float_info.max_10_exp else math.inf


def _total(text: str) -> Total | None:
    value = json.loads(text)
    return None if value is None else Total(**value)


def _damaged(dataset: str) -> LedgerError:
    return LedgerError(
        f"the rows of dataset {dataset!r} are not as they were written, so its budget cannot be trusted. "
        "Nothing was charged. `dpsketch ledger verify` names the rows."
    )


@contextmanager
def _parsing(dataset: str) -> Iterator[None]:
    """Say of rows that no longer parse that they are damaged."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise _damaged(dataset) from None
