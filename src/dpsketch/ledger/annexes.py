"""Tables beside the chains: what is known of a charge, and decides none of the numbers in its chain.

A row of an annex names the charge that it belongs to, by dataset, number and digest, and has a digest of its own.

**Deliveries**: whether anything of a paid release ever left the memory of the process that drew it. A charge may be
*bound* to what it pays for (which partials, budget and spec). It is then open until its release is about to be written.
While it is open nobody has seen a bit of the draw, so whoever comes with the same binding may draw again for the same
payment. It is closed once, by one process, before the first byte is written, and never opened again: a release that is
lost after that is lost. A charge without a row was handed to its caller when it was made, and counts as closed.

**Singles**: what may be released once, by a digest of a secret. A moment sketch is private for one release of its
secret. A copy of its file, in another process, cannot know that the first was released; the ledger that both are
charged to can. Names are looked for in all datasets, as a copy may be charged to another one.

**Members**: which partials were released as which part of a dataset, so that no sketch passes for two parts that share
no record. A stream is charged as a part before its records come; the partials that it absorbs are added when it does. A
partial is named by a digest of its random id, which says nothing of its records.

**Days**: which days of a stream were published, so that an old copy of its state cannot publish them again with other
noise. A stream is charged once, when it begins. Before a day is shown, its number and a digest of what it publishes
are recorded; a state that is behind the record, or ahead of it with another publication, is an old backup. The digest
is of published tables, noise and all.

**Origins**: which file was written, from which columns, and by whom. Commands know these, and the Python interface does
not. No charge is decided by them.

Beside these stands which dataset the records of a source are charged to, so that it is asked for once. A source is
known by a digest of where it lies, which the caller makes: never of what it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dpsketch.errors import LedgerError, ReleaseRefused
from dpsketch.ledger.connection import Connection, DatabaseTable
from dpsketch.ledger.store import TABLES, row_digest
from dpsketch.ledger.values import Charge, Origin, Problem

__all__ = [
    "ANNEXES", "Annex", "add_members", "add_singles", "bind", "close", "find_open", "last_day", "put_day", "put_origin",
    "put_source", "read_origins", "read_sources", "read_written", "refuse_charged", "refuse_other_part", "unpaid",
]  # fmt: skip

# Names that are looked for at a time; a database takes some thousands.
_AT_ONCE = 500
_OPEN, _WRITTEN = "charged", "written"


@dataclass(frozen=True, slots=True)
class Annex:
    """A table beside the chains, and what its rows record, in words."""

    table: DatabaseTable
    records: str

    def add(self, connection: Connection, charge: Charge, **row: Any) -> None:
        """Add a row that belongs to a charge."""
        row |= {"dataset": charge.dataset, "id": charge.id, "charge": charge.digest}
        connection.insert(self.table, **row, digest=row_digest(row))

    def trusted(self, connection: Connection, **own: Any) -> list[dict[str, Any]]:
        """Return the rows whose columns are as given; refuse to go on where one of them was altered."""
        rows = connection.select(self.table, **own)
        for row in rows:
            if _altered(row):
                raise LedgerError(
                    f"the ledger's record of {self.records} is not as it was written, so it cannot be trusted (row "
                    f"{row['id']} of dataset {row['dataset']!r}). Nothing was charged or published. `dpsketch ledger "
                    "verify` names the rows."
                )
        return rows

    def trusted_among(self, connection: Connection, names: Sequence[str], **own: Any) -> Iterator[dict[str, Any]]:
        """Give the rows, as :meth:`trusted` does, that have one of several names."""
        for start in range(0, len(names), _AT_ONCE):
            yield from self.trusted(connection, **own, name=list(names[start : start + _AT_ONCE]))

    def find_problems(self, connection: Connection, digests: dict[tuple[str, int], str]) -> list[Problem]:
        """Return every row that is not as it was written; ``digests`` are those of the chains' rows."""
        problems = []
        for row in connection.select(self.table):
            if _altered(row):
                what = f"its record of {self.records} was altered: its digest is not that of its content."
            elif digests.get((row["dataset"], row["id"])) != row["charge"]:
                what = f"has a record of {self.records}, and the charge that paid for it is another."
            else:
                continue
            problems.append(Problem(row["dataset"], row["id"], what))
        return problems


def _altered(row: dict[str, Any]) -> bool:
    return bool(row["digest"] != row_digest(row))


_DELIVERIES = Annex(TABLES.deliveries, "what became of a release")
_SINGLES = Annex(TABLES.singles, "what a release used up")
_MEMBERS = Annex(TABLES.members, "what was released as which part")
_ORIGINS = Annex(TABLES.origins, "where a release came from")
_DAYS = Annex(TABLES.days, "the days of a stream")
ANNEXES = (_DELIVERIES, _SINGLES, _MEMBERS, _ORIGINS, _DAYS)


def bind(connection: Connection, charge: Charge, binding: str) -> None:
    """Open a charge that was just made."""
    _DELIVERIES.add(connection, charge, binding=binding, state=_OPEN)


def find_open(connection: Connection, dataset: str, binding: str) -> list[tuple[int, str]]:
    """Return number and digest of every charge of this binding that is still open, oldest first."""
    rows = _DELIVERIES.trusted(connection, dataset=dataset, binding=binding)
    return [(row["id"], row["charge"]) for row in rows if row["state"] == _OPEN]


def close(connection: Connection, charge: Charge) -> None:
    """Record that a release is about to be written; refuse if another process came first."""
    rows = _DELIVERIES.trusted(connection, dataset=charge.dataset, id=charge.id)
    if not rows or rows[0]["charge"] != charge.digest or rows[0]["state"] != _OPEN:
        raise ReleaseRefused(
            f"charge {charge.id} to dataset {charge.dataset!r} has already paid for a release that was written, by "
            "another process perhaps. Nothing more was written for it. To release once more, and pay once more, run "
            "the command again."
        )
    change = {"state": _WRITTEN, "digest": row_digest({**rows[0], "state": _WRITTEN})}
    if connection.update(TABLES.deliveries, change, dataset=charge.dataset, id=charge.id, state=_OPEN) != 1:
        raise LedgerError(f"charge {charge.id} to dataset {charge.dataset!r} changed meanwhile. Try again.")


def read_written(connection: Connection, dataset: str) -> dict[int, bool]:
    """Say of each bound charge whether its release was written, or at least begun."""
    return {row["id"]: row["state"] == _WRITTEN for row in connection.select(TABLES.deliveries, dataset=dataset)}


def add_singles(connection: Connection, charge: Charge, names: Iterable[str]) -> None:
    """Record what a charge that was just made has used up."""
    for name in names:
        _SINGLES.add(connection, charge, name=name)


def refuse_charged(connection: Connection, names: Sequence[str]) -> None:
    """Refuse what a charge to any dataset has used up."""
    for row in _SINGLES.trusted_among(connection, names):
        raise ReleaseRefused(
            f"this sketch, or a copy of it, was charged before, as row {row['id']} of dataset {row['dataset']!r}, and "
            "is private for one release only. Nothing was charged. If nothing of that release was written, repeat its "
            "command with the same budget and options; if it is whole, `dpsketch recover` puts it in place; else build "
            "a new sketch."
        )


def refuse_other_part(connection: Connection, dataset: str, part: str, names: Sequence[str]) -> set[str]:
    """Refuse partials that were released as another part; return those that were released as this one."""
    known: set[str] = set()
    for row in _MEMBERS.trusted_among(connection, names, dataset=dataset):
        if row["part"] != part:
            raise ReleaseRefused(
                f"this sketch, or one that is merged into it, was released as part {row['part']!r} of dataset "
                f"{dataset!r} or merged into a stream of it (row {row['id']}), and parts must share no record. Nothing "
                "was charged. Use it for that part, or name no part: it then counts for all of them."
            )
        known.add(row["name"])
    return known


def add_members(connection: Connection, charge: Charge, part: str, names: Iterable[str]) -> None:
    """Record partials as of the part that was charged."""
    for name in names:
        _MEMBERS.add(connection, charge, name=name, part=part)


def put_day(connection: Connection, charge: Charge, day: int, publication: str) -> None:
    """Record that a day of a stream is about to be shown; refuse one that was shown with other noise."""
    known = _published(connection, charge)
    if day in known:
        if known[day] != publication:
            raise ReleaseRefused(
                f"day {day} of this stream was published before, with other noise: the state is an old copy. Nothing "
                "is shown. Go on from the newest state."
            )
        return
    if any(each > day for each in known):
        raise ReleaseRefused(
            f"day {max(known)} of this stream was published, and the state is an old copy of day {day}."
        )
    _DAYS.add(connection, charge, day=day, publication=publication)


def last_day(connection: Connection, charge: Charge) -> list[tuple[int, str]]:
    """Return the newest day that a stream has shown, and what of it is recorded; nothing before one."""
    known = _published(connection, charge)
    return [(max(known), known[max(known)])] if known else []


def _published(connection: Connection, charge: Charge) -> dict[int, str]:
    """Refuse a stream that was not charged here: what this ledger knows of its days tells nothing."""
    if not connection.select(TABLES.entries, dataset=charge.dataset, id=charge.id, digest=charge.digest):
        raise unpaid(charge)
    return {row["day"]: row["publication"] for row in _DAYS.trusted(connection, charge=charge.digest)}


def unpaid(charge: Charge) -> LedgerError:
    """Return the refusal of a stream that another ledger has paid for."""
    return LedgerError(
        "this stream was charged to another ledger, which knows the days that it has shown: here is no such row "
        f"{charge.id} of dataset {charge.dataset!r}. Go on with the ledger that the stream began with."
    )


def put_origin(connection: Connection, charge: Charge, origin: Origin) -> None:
    """Record where a charge came from; a charge that is taken up again comes from where it is now."""
    connection.delete(TABLES.origins, dataset=charge.dataset, id=charge.id)
    _ORIGINS.add(connection, charge, **asdict(origin))


def read_origins(connection: Connection, dataset: str) -> dict[int, Origin]:
    """Return where each charge to a dataset came from, as far as it is known; nothing of a row that was altered."""
    return {
        row["id"]: Origin(row["output"], row["columns"], row["who"])
        for row in connection.select(TABLES.origins, dataset=dataset)
        if not _altered(row)
    }


def put_source(connection: Connection, source: str, dataset: str) -> None:
    """Remember the dataset of a source; the last one stated holds."""
    connection.delete(TABLES.sources, source=source)
    connection.insert(TABLES.sources, source=source, dataset=dataset)


def read_sources(connection: Connection) -> dict[str, str]:
    """Return the dataset of each source."""
    return {row["source"]: row["dataset"] for row in connection.select(TABLES.sources)}
