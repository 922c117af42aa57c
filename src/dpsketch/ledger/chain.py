"""A dataset's rows: an append-only chain in which each row's digest covers the row before it.

Row 0 creates the dataset, with its unit and perhaps its total and what divides it into parts. A later row sets the
total of a dataset that had none, or is a charge, to one part perhaps. The dataset's own row holds the chain's length
and its last digest, so that rows missing at the end show as well. It is updated in the transaction that adds a row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from dpsketch.errors import LedgerError
from dpsketch.ledger.annexes import ANNEXES, read_origins, read_written
from dpsketch.ledger.connection import Connection
from dpsketch.ledger.parts import Division, Link, State, other_spelling
from dpsketch.ledger.store import TABLES, canonical, row_digest
from dpsketch.ledger.values import Charge, Entry, Kind, Origin, Problem, Total
from dpsketch.privacy import Cost, Unit, cost_from_json, cost_to_json

__all__ = ["append", "find_problems", "read_entries", "read_names", "read_state"]

# The layout of a dataset's rows.
_FORMAT = 1
# Missing rows in a row of which each is named.
_MOST_TOLD = 1000


def append(
    connection: Connection,
    dataset: str,
    link: Link | None,
    kind: Kind,
    *,
    unit: Unit,
    total: Total | None = None,
    division: Division | None = None,
    costs: Sequence[Cost] = (),
    part: str | None = None,
    note: str = "",
) -> Link:
    """Add a row to a chain, or begin one; return its new end."""
    row = {
        "dataset": dataset,
        "id": 0 if link is None else link.rows,
        "kind": kind,
        "time": datetime.now(UTC).isoformat(timespec="microseconds"),
        "costs": canonical({"part": part, "costs": [cost_to_json(cost) for cost in costs]}),
        "total": canonical(None if total is None else total.to_json() | {"parts": division and division.to_json()}),
        "unit": canonical(unit.to_json()),
        "note": note,
        "previous": "" if link is None else link.head,
    }
    end = Link(1 if link is None else link.rows + 1, row_digest(row))
    connection.insert(TABLES.entries, **row, digest=end.head)
    if link is None:
        connection.insert(TABLES.datasets, name=dataset, format=_FORMAT, rows=end.rows, head=end.head)
    elif connection.update(TABLES.datasets, {"rows": end.rows, "head": end.head}, name=dataset, head=link.head) != 1:
        raise LedgerError(f"dataset {dataset!r} changed while it was charged. Nothing was charged; try again.")
    return end


def read_names(connection: Connection) -> list[str]:
    """Return the datasets' names, in order."""
    return sorted(connection.distinct(TABLES.datasets, "name"), key=str)


def read_entries(connection: Connection, dataset: str) -> list[Entry]:
    """Return a dataset's charges, oldest first."""
    rows = connection.select(TABLES.entries, dataset=dataset)
    written, known = read_written(connection, dataset), read_origins(connection, dataset)
    with _parsing(dataset):
        return [_entry(row, written.get(row["id"]), known.get(row["id"])) for row in rows if row["kind"] == "charge"]


def read_state(connection: Connection, dataset: str) -> State | None:
    """Return what a dataset's rows add up to; None where the ledger does not know it.

    All of its chain is checked first, as :func:`find_problems` does: whatever a charge is decided by was written by a
    ledger. That reads every row: some tenths of a second for 10,000 of them.
    """
    found = connection.select(TABLES.datasets, name=dataset)
    if len(found) > 1:
        raise _damaged(dataset)
    own = found[0] if found else None
    if own is not None and own["format"] != _FORMAT:
        raise LedgerError(f"dataset {dataset!r} was written by a later version of dpsketch. Upgrade to use its ledger.")
    rows = connection.select(TABLES.entries, dataset=dataset)
    if own is None:
        if rows:
            raise _damaged(dataset)
        _refuse_other_spelling(connection, dataset)
        return None
    if _chain_problems(dataset, rows) or _end_problems(dataset, rows, own["rows"], own["head"]):
        raise _damaged(dataset)
    with _parsing(dataset):
        charged = Counter(row["costs"] for row in rows if row["kind"] == "charge")
        whole: Counter[Cost] = Counter()
        parts: dict[str, Counter[Cost]] = {}
        for text, times in charged.items():
            costs, part = _read_costs(text)
            counted = whole if part is None else parts.setdefault(part, Counter())
            for cost in costs:
                counted[cost] += times
        settings = [row for row in rows if row["kind"] != "charge"]
        total, division = _read_total(settings[-1]["total"])
        return State(
            Link(own["rows"], own["head"]),
            Unit.from_json(json.loads(settings[0]["unit"])),
            total,
            whole,
            charged.total(),
            division,
            parts,
        )


def _refuse_other_spelling(connection: Connection, dataset: str) -> None:
    """Refuse a new name that could be a second name of a known dataset: it would be another account."""
    known = other_spelling(dataset, map(str, read_names(connection)))
    if known is not None:
        raise LedgerError(
            f"dataset {dataset!r} is unknown, and its name differs from {known!r} only by case, spaces or the form of "
            "its characters. It would be another account, with a budget of its own. Nothing was charged. Use the name "
            f"{known!r}, or a name that nobody takes for it."
        )


def find_problems(connection: Connection, charges: Iterable[Charge]) -> list[Problem]:
    """Return everything in the ledger that is not as it was written, and every charge that it does not hold."""
    heads = {row["name"]: row for row in connection.select(TABLES.datasets)}
    names = sorted({*heads, *connection.distinct(TABLES.entries, "dataset")}, key=str)
    problems: list[Problem] = []
    digests: dict[tuple[str, int], str] = {}
    for name in names:
        rows = connection.select(TABLES.entries, dataset=name)
        digests.update({(name, row["id"]): row["digest"] for row in rows})
        problems += _chain_problems(name, rows)
        if name in heads:
            problems += _end_problems(name, rows, heads[name]["rows"], heads[name]["head"])
        else:
            problems.append(Problem(name, None, "was deleted from the list of datasets, but its rows are there."))
    for annex in ANNEXES:
        problems += annex.find_problems(connection, digests)
    for charge in charges:
        found = digests.get((charge.dataset, charge.id))
        if charge.dataset not in names:
            what = "is not in this ledger: its file was replaced, or the release was charged to another ledger."
            problems.append(Problem(charge.dataset, charge.id, what))
        elif found is None:
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
        problems += _told(name, expected, row["id"], "is missing: it was deleted.")
        unbroken = row["id"] == expected
        if row["digest"] != row_digest(row):
            problems.append(Problem(name, row["id"], "was altered or moved: its digest is not that of its content."))
        elif unbroken and row["previous"] != ("" if before is None else before["digest"]):
            problems.append(Problem(name, row["id"], "does not follow the row before it: one of the two was replaced."))
        expected, before = row["id"] + 1, row
    return problems


def _end_problems(name: str, rows: list[dict[str, Any]], count: int, head: str) -> list[Problem]:
    if not isinstance(count, int):
        return [Problem(name, None, "has a number of rows that was altered.")]
    rows = [row for row in rows if isinstance(row["id"], int)]
    found = rows[-1]["id"] + 1 if rows else 0
    if found < count:
        return _told(name, found, count, "is missing: it was deleted.")
    if found > count:
        return _told(name, count, found, "was added by something else than a ledger.")
    if rows and rows[-1]["digest"] != head:
        return [Problem(name, rows[-1]["id"], "is not the row that the dataset ended with: it was replaced.")]
    return []


def _told(name: str, first: int, end: int, what: str) -> list[Problem]:
    """Tell the same of each row from one to another; of a number that somebody wrote there may follow billions."""
    return [Problem(name, row, what) for row in range(first, min(end, first + _MOST_TOLD))]


def _entry(row: dict[str, Any], written: bool | None, origin: Origin | None) -> Entry:
    unit = Unit.from_json(json.loads(row["unit"]))
    costs, part = _read_costs(row["costs"])
    return Entry(row["dataset"], row["id"], row["time"], costs, unit, row["note"], row["digest"], written, part, origin)


def _read_costs(text: str) -> tuple[tuple[Cost, ...], str | None]:
    match json.loads(text):
        case {"part": str() | None as part, "costs": list(listed)}:
            return tuple(cost_from_json(cost) for cost in listed), part
    raise ValueError("a charge has a part, or null, and a list of costs.")


def _read_total(text: str) -> tuple[Total | None, Division | None]:
    value = json.loads(text)
    if value is None:
        return None, None
    parts = value.pop("parts")
    return Total(**value), None if parts is None else Division(**parts)


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
