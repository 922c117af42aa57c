"""The ledger itself: totals, charges, the check that nobody changed them, and a payment for one release."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpsketch import accounting
from dpsketch.errors import BudgetExceeded, InvalidInput, LedgerError, ReleaseRefused
from dpsketch.ledger import annexes
from dpsketch.ledger.chain import append, find_problems, read_entries, read_names, read_state
from dpsketch.ledger.connection import Connection
from dpsketch.ledger.parts import Division, Link, State, fits
from dpsketch.ledger.store import LedgerStore, canonical, home_file
from dpsketch.ledger.values import (
    Charge,
    Entry,
    Order,
    Origin,
    Preview,
    Problem,
    Spent,
    Total,
    preview_of,
    spent_of,
)
from dpsketch.numbers import whole_number
from dpsketch.privacy import Cost, Unit, cost_to_json

__all__ = ["Ledger", "Payment", "binding_of"]

# A cost past this protects nobody, and enough of them would not add up to a number.
_LARGEST = 1e9


class Ledger:
    """Totals of datasets, and every release charged to them.

    Parameters
    ----------
    url : str or Path
        A SQLite file, as a path or ``sqlite:///budget.db``, or a PostgreSQL database, as
        ``postgresql://user@host/database``. :meth:`create` makes the file or the tables where there are none. All
        other methods refuse a ledger that is missing or empty: with it, its totals are gone.

    Privacy
    -------
    A charge is committed before the caller draws noise, so a crash can only charge too much. Charges to one dataset are
    taken one after the other, whichever processes make them, and each is composed with all before it
    (:mod:`dpsketch.accounting`), so that together they never pass the total. Rows are only ever added; each carries the
    digest of the one before. Every charge checks all of them, and refuses where one was changed, moved or deleted;
    :meth:`verify` names it. Someone who may write to the database can forge a whole chain. The charges that release
    files carry then no longer match it.

    An analyst may choose what to release next after seeing what was released before. How *much* it costs may depend on
    that as well where the total is in ρ, where all charges are Gaussian, and where all are pure and δ is 0. For other
    histories the composition assumes that it does not.

    A charge's unit must have the level and the neighbour relation of its dataset's unit: a budget of records says
    nothing about users, and neither relation's ε bounds the other's without a factor. The bounds on keys and weight may
    differ from charge to charge. They say how a mechanism clips, and its cost already counts what is left after that:
    the guarantee covers all of a unit's data, whatever the bound was.

    Examples
    --------
    >>> import tempfile, dpsketch as dps
    >>> from dpsketch.privacy import GaussianCost
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger(f"sqlite:///{folder}/budget.db")
    ...     ledger.create("web", epsilon=2.0, delta=1e-6, unit=dps.per_record())
    ...     charge = ledger.charge("web", [GaussianCost(0.3)], unit=dps.per_record(), note="searches in May")
    ...     print(ledger.spent("web").words)
    ε=1.29 of 2.00 at δ=1e-6 spent in 1 release
    """

    # What a charge is for and where its release goes, where that is known: see Payment.
    _binding: str | None = None
    _origin: Origin | None = None

    def __init__(self, url: str | Path) -> None:
        self._store = LedgerStore(url)

    @classmethod
    def default(cls) -> Ledger:
        """Return the ledger that ``$DPSKETCH_LEDGER`` names, else the one in the user's data directory.

        The first charge begins the file in the data directory where there never was one. Deleted or emptied later, it
        is refused. A charge never begins a ledger that the variable names: create a dataset in it first.
        """
        return cls(os.environ.get("DPSKETCH_LEDGER") or home_file())

    def __repr__(self) -> str:
        return f"Ledger({str(self._store)!r})"

    def create(
        self,
        dataset: str,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        unit: Unit,
        parts: str | None = None,
        disjoint_users: bool = False,
    ) -> None:
        """Give a dataset its total, (ε, δ) or ρ; a total is set once and never changed.

        A dataset that was charged before anyone set a total can still get one, if the charges fit it.

        Parameters
        ----------
        dataset : str
            The dataset's name.
        epsilon, delta, rho : float
            The total.
        unit : Unit
            Whose presence the budget protects.
        parts : str, optional
            By what the dataset is divided into parts that share no record, as in "day". Releases that name their part
            cost as much as the dearest part, or as the dearest two where a unit is replaced.
        disjoint_users : bool, optional
            State that each user is in one part. Without it the parts of a budget of users compose.
        """
        _check_name(dataset)
        total, division = Total(epsilon, delta, rho), _division(parts, unit, disjoint_users)

        def work(connection: Connection) -> None:
            state = read_state(connection, dataset)
            if state is None:
                append(connection, dataset, None, "create", unit=unit, total=total, division=division)
                return
            if state.total is not None:
                raise LedgerError(
                    f"dataset {dataset!r} already has a total of {state.total.words}, and a total is never changed. "
                    "Use another name for another dataset."
                )
            _check_unit(dataset, state.unit, unit)
            if not fits(state, total):
                spent = spent_of(dataset, replace(state, total=total))
                raise LedgerError(
                    f"dataset {dataset!r} has already passed that total: {spent.words}. Set a larger one."
                )
            append(connection, dataset, state.link, "total", unit=unit, total=total, division=division)

        self._store.write(dataset, work, create=True)

    def charge(
        self,
        dataset: str,
        costs: Sequence[Cost],
        *,
        unit: Unit,
        part: str | None = None,
        note: str = "",
        once: Sequence[str] = (),
        partials: Iterable[str] = (),
    ) -> Charge:
        """Charge a release; to be called before its noise is drawn.

        A dataset that nobody created is recorded without a total, which the charge says by ``total=None``.

        Parameters
        ----------
        dataset : str
            The dataset that the release is made from.
        costs : sequence of Cost
            What the release costs, for one unit under the unit's neighbour relation.
        unit : Unit
            The release's unit.
        part : str, optional
            The part of the dataset that the release is made of, where it is divided into such. All records that the
            release was made from are in that part, and in no other: the caller's word.
        note : str
            What was released, in the caller's own words; no datum of a record belongs here.
        once : sequence of str
            Names of what the release uses up, such as digests of secrets: no charge to any dataset of this ledger can
            name one of them again.
        partials : iterable of str
            Names of the partials in the sketch, where it is released as a part: none can be released as another part.

        Raises
        ------
        BudgetExceeded
            The total does not cover it. Nothing was charged.
        ReleaseRefused
            What may be released once was charged before. Nothing was charged.
        """
        return self._pay(Order(dataset, costs, unit, part, note, once, partials))[0]

    def _pay(self, order: Order) -> tuple[Charge, bool]:
        """Charge a release, or find its open charge where it is bound; say whether it was found."""
        dataset, costs, unit, part, note, once, partials = order
        binding, origin = self._binding, self._origin
        _check_charge(dataset, costs)
        _check_text(note, "a note", longest=1000)
        partials = list(partials)
        for name in [*once, *partials]:
            _check_text(name, "a name of what is released once or as a part", longest=200)
        named, single = sorted(set(partials)), sorted(set(once))

        def work(connection: Connection) -> tuple[Charge, bool]:
            state = read_state(connection, dataset)
            if state is None:
                _check_part(dataset, None, part, ())
                link = append(connection, dataset, None, "create", unit=unit)
                state = State(link, unit, None, Counter(), 0)
            _check_unit(dataset, state.unit, unit)
            _check_part(dataset, state.division, part, state.parts)
            open_charges = [] if binding is None else annexes.find_open(connection, dataset, binding)
            if open_charges:
                paid = {entry.id: entry for entry in read_entries(connection, dataset)}
                for row, digest in open_charges:
                    entry = paid.get(row)
                    if entry is not None and _pays_for(entry, digest, order):
                        charge = Charge(dataset, row, digest, state.total)
                        if origin is not None:
                            annexes.put_origin(connection, charge, origin)
                        return charge, True
            annexes.refuse_charged(connection, single)
            known = set() if part is None else annexes.refuse_other_part(connection, dataset, part, named)
            if state.total is not None and not fits(state.charged(costs, part), state.total):
                raise BudgetExceeded(preview_of(dataset, state, costs, part).words)
            link = append(connection, dataset, state.link, "charge", unit=unit, costs=costs, part=part, note=note)
            charge = Charge(dataset, link.rows - 1, link.head, state.total)
            if binding is not None:
                annexes.bind(connection, charge, binding)
            if origin is not None:
                annexes.put_origin(connection, charge, origin)
            annexes.add_singles(connection, charge, single)
            if part is not None:
                annexes.add_members(connection, charge, part, [name for name in named if name not in known])
            return charge, False

        return self._store.write(dataset, work)

    def register_partials(self, charge: Charge, partials: Iterable[str]) -> None:
        """Record partials that a sketch is about to absorb after it was charged as a part, such as a stream.

        Parameters
        ----------
        charge : Charge
            The sketch's own. Where it names no part there is nothing to record.
        partials : iterable of str
            Names of the partials.

        Raises
        ------
        ReleaseRefused
            One of them belongs to another part of the dataset. Nothing was recorded.
        LedgerError
            The sketch was charged to another ledger.
        """
        names = sorted(set(partials))
        for name in names:
            _check_text(name, "a name of a partial", longest=200)

        def work(connection: Connection) -> None:
            read_state(connection, charge.dataset)  # refuses rows that were altered
            paid = [entry for entry in read_entries(connection, charge.dataset) if entry.digest == charge.digest]
            if not paid:
                raise annexes.unpaid(charge)
            if (part := paid[0].part) is not None:
                known = annexes.refuse_other_part(connection, charge.dataset, part, names)
                annexes.add_members(connection, charge, part, [name for name in names if name not in known])

        self._store.write(charge.dataset, work)

    def record_day(self, charge: Charge, day: int, publication: str) -> None:
        """Record that a day of a stream is about to be shown, before it is.

        Parameters
        ----------
        charge : Charge
            The stream's own, made when it began.
        day : int
            Its number, from 1 on.
        publication : str
            A digest of what it publishes.

        Raises
        ------
        ReleaseRefused
            The day, or a later one, was shown with other noise: whoever asks goes on from an old copy.
        LedgerError
            The stream was charged to another ledger.
        """
        number = whole_number("day", day, low=1, high=2**63 - 1)
        self._store.write(charge.dataset, lambda connection: annexes.put_day(connection, charge, number, publication))

    def last_day(self, charge: Charge) -> tuple[int, str] | None:
        """Return the newest day that a stream has shown, with the digest of its publication; None before one.

        Raises
        ------
        LedgerError
            The stream was charged to another ledger.
        """
        found = self._store.read(lambda connection: annexes.last_day(connection, charge), None)
        if found is None:  # a ledger without a row
            raise annexes.unpaid(charge)
        return found[0] if found else None

    def preview(self, dataset: str, costs: Sequence[Cost], *, unit: Unit, part: str | None = None) -> Preview:
        """Say what a charge would do, and touch nothing."""
        _check_charge(dataset, costs)
        state = self._store.read(lambda connection: read_state(connection, dataset), None)
        if state is None:
            state = State(Link(0, ""), unit, None, Counter(), 0)
        _check_unit(dataset, state.unit, unit)
        _check_part(dataset, state.division, part, state.parts)
        return preview_of(dataset, state, costs, part)

    def spent(self, dataset: str) -> Spent:
        """Return what all charges to a dataset come to, and its total."""
        state = self._store.read(lambda connection: read_state(connection, dataset), None)
        if state is None:
            raise self._unknown(dataset)
        return spent_of(dataset, state)

    def history(self, dataset: str) -> list[Entry]:
        """Return every charge to a dataset, oldest first."""

        def work(connection: Connection) -> list[Entry] | None:
            return read_entries(connection, dataset) if dataset in read_names(connection) else None

        entries = self._store.read(work, None)
        if entries is None:
            raise self._unknown(dataset)
        return entries

    def datasets(self) -> list[str]:
        """Return the names of all datasets, in order."""
        return self._store.read(read_names, [])

    def name_source(self, source: str, dataset: str) -> None:
        """Remember that a source's records are charged to a dataset; ``source`` is a digest of where it lies."""
        _check_name(dataset)
        _check_text(source, "a source", longest=200)
        self._store.write(dataset, lambda connection: annexes.put_source(connection, source, dataset))

    def named_sources(self) -> dict[str, str]:
        """Return the dataset of every source that was named."""
        return self._store.read(annexes.read_sources, {})

    def verify(self, release_charges: Iterable[Charge] = ()) -> list[Problem]:
        """Return every row that was altered, moved or deleted; an empty list if all are as they were written.

        Parameters
        ----------
        release_charges : iterable of Charge
            Charges that release files carry. Each must be a row of the ledger, digest included. This is what finds a
            chain that someone rewrote from one row to its end.
        """
        charges = list(release_charges)
        missing = [Problem(c.dataset, c.id, "a release was charged as this row, and it is missing.") for c in charges]
        return self._store.read(lambda connection: find_problems(connection, charges), missing)

    def _unknown(self, dataset: str) -> LedgerError:
        names = ", ".join(repr(name) for name in self.datasets()[:10]) or "none"
        return LedgerError(f"the ledger {self._store} has no dataset {dataset!r}. Its datasets: {names}.")


class Payment(Ledger):
    """A ledger that takes one charge, for one release.

    Parameters
    ----------
    ledger : Ledger
        The ledger that is charged.
    binding : str
        What the release is made of, from :func:`binding_of`.
    origin : Origin, optional
        Where it is written, from what and by whom, for readers of the ledger.

    Attributes
    ----------
    made : Charge or None
        The charge, once it is made.
    resumed : bool
        Whether it was made before, for a release of which nothing was ever written.

    Privacy
    -------
    A charge of the same binding, dataset, costs, unit and note that is still open is used again. It is open only while
    no byte of a draw has left the process that made it, which :meth:`close` ends before the first one does. Of several
    processes that hold one open charge, one can close it; the others must throw their draws away.
    """

    def __init__(self, ledger: Ledger, binding: str, origin: Origin | None = None) -> None:
        self._store = ledger._store
        self._binding = binding
        self._origin = origin
        self.made: Charge | None = None
        self.resumed = False

    @property
    def folder(self) -> Path | None:
        """The folder of the ledger's file; None for a database."""
        return None if self._store.file is None else self._store.file.parent

    def _pay(self, order: Order) -> tuple[Charge, bool]:
        """Charge the release, or take up the charge that was made for it before; once."""
        if self.made is not None:
            raise LedgerError("this payment has been made, and pays for one release only.")
        self.made, self.resumed = super()._pay(order)
        return self.made, self.resumed

    def close(self) -> None:
        """Record that the release is about to be written; to be called before its first byte is.

        Raises
        ------
        ReleaseRefused
            Another process closed the charge. This one must not write what it drew.
        """
        if (made := self.made) is None:
            raise LedgerError("this payment has not been made, so nothing can be written for it.")
        self._store.write(made.dataset, lambda connection: annexes.close(connection, made))


def binding_of(partials: frozenset[str], **release: Any) -> str:
    """Name what a payment is for: the partials in a sketch, and what is made of them (budget, spec, options).

    No count or cell of the sketch goes into it, so it tells nothing of the records.
    """
    return hashlib.sha256(canonical({"partials": sorted(partials), **release}).encode()).hexdigest()


def _pays_for(entry: Entry, digest: str, order: Order) -> bool:
    made = (entry.digest, entry.costs, entry.unit, entry.part, entry.note)
    return made == (digest, tuple(order.costs), order.unit, order.part, order.note)


def _check_charge(dataset: str, costs: Sequence[Cost]) -> None:
    _check_name(dataset)
    if not costs:
        raise InvalidInput("a charge needs at least one cost.")
    for cost in costs:
        accounting.check_cost(cost)
        if max(value for value in cost_to_json(cost).values() if not isinstance(value, str)) > _LARGEST:
            raise InvalidInput(
                f"a cost that can be charged is finite, and no number of it passes {_LARGEST:g}: {cost!r}."
            )


def _division(parts: str | None, unit: Unit, disjoint_users: bool) -> Division | None:
    if disjoint_users and (parts is None or unit.level != "user"):
        raise InvalidInput(
            "disjoint_users= states that each user is in one part: it goes with parts= and dps.per_user."
        )
    if parts is None:
        return None
    _check_text(parts, "what divides a dataset into parts", longest=200)
    if not parts.strip():
        raise InvalidInput("parts= names what divides the dataset, as in parts='day'.")
    return Division(parts, disjoint_users)


def _check_part(dataset: str, division: Division | None, part: str | None, known: Iterable[str]) -> None:
    if part is None:
        return
    _check_text(part, "a part's name", longest=200)
    if division is None:
        raise ReleaseRefused(
            f"dataset {dataset!r} is not divided into parts, so that none can be released as one. Create it with "
            "parts= (in the shell, --parts), as in parts='day', or leave the part out. Nothing was charged."
        )
    division.check_name(part, known)


def _check_name(dataset: str) -> None:
    _check_text(dataset, "a dataset's name", longest=200)
    if not dataset or dataset != dataset.strip():
        raise InvalidInput("a dataset's name must not be empty, and neither begin nor end with a space.")


def _check_text(text: str, name: str, *, longest: int) -> None:
    if not isinstance(text, str):
        raise InvalidInput(f"{name} must be text, not {type(text).__name__}.")
    if len(text) > longest or not text.isprintable():
        raise InvalidInput(f"{name} must be at most {longest} printable characters.")


def _check_unit(dataset: str, budget: Unit, unit: Unit) -> None:
    if (budget.level, budget.neighbours) != (unit.level, unit.neighbours):
        raise ReleaseRefused(
            f"the budget of dataset {dataset!r} protects {budget.words}, and this release protects {unit.words}. The "
            "two cannot be added up: release with the budget's level and neighbour relation, or charge another dataset."
        )
