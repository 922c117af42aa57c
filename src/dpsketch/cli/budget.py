"""What a release may cost, and whose budget pays.

Where nobody says so, a dataset's name is asked for once, and remembered beside the ledger. A file's name is no
identity: a copy of a file has another name, and would be another dataset with a fresh budget; two files of one name in
two folders, or two uses of standard input, may have nothing in common. What the file holds is no identity either: it
changes, and a digest of it would be a digest of the records. So a source is known by *where it lies* (a file by its
full path, a database by its address without user and password), and a partial sketch by the random ids in it, which a
copy has as well. The first time that a source is charged, the ledger remembers to which dataset. A source that it does
not know gets the name of its only file (several files, or a database, a random one) as long as there is no total in the
ledger that could be evaded by that. From then on it must be stated.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from dpsketch.cli.options import LEDGER, WHOLE, flag_of, given, open_ledger
from dpsketch.errors import InvalidInput

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.ledger import Ledger
    from dpsketch.sketches.kinds import Kind

__all__ = ["BudgetOptions", "Source", "Target", "source_of", "source_of_sketch"]

# From this ε on, e^ε is past 20,000.
_CARELESS = 10.0
_GROUP = "Budget"


@dataclass(frozen=True, slots=True)
class BudgetOptions:
    """What a release may cost, and who pays; ``release`` holds the stated options of the kind's release."""

    epsilon: float | None = given("Privacy parameter ε of the release.", "--epsilon", "-e", group="Options")
    delta: float | None = given(
        "Privacy parameter δ of the release; 0 is pure privacy.", "--delta", "-d", group="Options"
    )
    dataset: str | None = given(
        "Dataset whose budget pays. By default the file name of a single source.", group="Options"
    )
    no_ledger: bool = given("No charge to any budget: this release is tracked nowhere.", group="Options", default=False)
    rho: float | None = given("Privacy parameter ρ (zero-concentrated), instead of ε and δ.", group=_GROUP)
    ledger: str | None = given(LEDGER, group=_GROUP, envvar="DPSKETCH_LEDGER", show_envvar=True)
    part: str | None = given(
        "Part of the dataset that is released, as in 2026-11-15 (see: ledger create --parts).", group=_GROUP
    )
    records: int | None = given("Approximate number of records, as you state it.", group=_GROUP, type=WHOLE)
    keys: int | None = given(
        "Approximate number of distinct keys, as you state it, for --dry-run.", group=_GROUP, type=WHOLE
    )
    yes: bool = given("Permission for a budget that protects hardly anyone.", group=_GROUP, default=False)
    release: dict[str, Any] = field(default_factory=dict)

    def arguments(self, kind: Kind, spec: Any, key_type: KeyType | None = None) -> dict[str, Any]:
        """Return the arguments of a kind's ``release`` beside the budget itself."""
        from dpsketch.cli.kinds import release_arguments

        foreign = sorted(set(self.release) - {option.name for option in kind.release_options})
        if foreign:
            raise click.UsageError(f"{', '.join(map(flag_of, foreign))} does not apply to {kind.name}.")
        return release_arguments(kind, spec, self.release, key_type) if self.release else {}

    @property
    def amount(self) -> dict[str, float | None]:
        """The budget itself, as ``release`` takes it."""
        return {"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho}

    def check(self) -> None:
        """Refuse an incomplete budget, and one that protects hardly anyone unless --yes says that it is meant."""
        from dpsketch.privacy import CARELESS_DELTA, Budget

        Budget(**self.amount)
        if self.yes:
            return
        epsilon = self.epsilon or 0.0
        if self.rho is not None:
            from dpsketch import accounting
            from dpsketch.core.drawn import DELTA_FOR_RHO

            epsilon = accounting.gaussian_epsilon(accounting.zcdp_mu(self.rho), DELTA_FOR_RHO)
        if epsilon >= _CARELESS:
            raise InvalidInput(
                f"ε = {epsilon:.3g} protects hardly anyone: whoever is almost sure that someone is not in the data "
                "may be almost sure of the opposite afterwards. Choose one below 10 (1 is usual), or say --yes."
            )
        if self.delta is not None and self.delta >= CARELESS_DELTA:
            raise InvalidInput(
                f"δ = {self.delta:g} protects hardly anyone: a release that shows each unit whole with this "
                "probability would keep the promise. Choose one far below one over the number of units (1e-6 is "
                "usual), or say --yes."
            )
        if self.records is not None and self.delta is not None and self.delta * self.records >= 1:
            raise InvalidInput(
                f"δ = {self.delta:g} is no less than 1 over the {self.records:,} records that --records states, and "
                f"allows a release that shows some record whole. Choose one well below {1 / self.records:.1g}, or say "
                "--yes."
            )

    def target(self, source: Callable[[], Source]) -> Target:
        """Choose the ledger: the one named, else the user's own, unless the caller opted out by name.

        ``source`` tells where the records come from: the ledger may know whose they are.
        """
        if self.no_ledger:
            if self.dataset is not None or self.part is not None:
                raise InvalidInput("--no-ledger contradicts --dataset and --part.")
            return Target(None, None)
        ledger = open_ledger(self.ledger)
        origin, known = source(), ledger.named_sources()
        dataset, note = origin.dataset(ledger, known, self.dataset)
        return Target(ledger, dataset, self.part, origin.identity, known.get(origin.identity or ""), note)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a release is charged; ``known`` is the dataset that the ledger knew its source by."""

    ledger: Ledger | None
    dataset: str | None
    part: str | None = None
    source: str | None = None
    known: str | None = None
    note: str | None = None

    def remember(self) -> None:
        """Have the ledger know the source from now on."""
        if self.ledger is None or self.dataset is None or self.source is None or self.known == self.dataset:
            return
        self.ledger.name_source(self.source, self.dataset)


@dataclass(frozen=True, slots=True)
class Source:
    """Where records come from.

    Attributes
    ----------
    identity : str or None
        A digest of where they lie; None where they lie nowhere, as in a pipe.
    name : str or None
        The name of an only file. Not of several, as it is published and they may name people.
    words : str
        What to call it.
    """

    identity: str | None
    name: str | None
    words: str

    def dataset(self, ledger: Ledger, known: dict[str, str], stated: str | None) -> tuple[str, str | None]:
        """Return which dataset pays, and what the data holder should know about that.

        Parameters
        ----------
        ledger : Ledger
            What remembers it.
        known : dict
            The dataset of every source that it remembers.
        stated : str or None
            The dataset that the caller names.
        """
        before = None if self.identity is None else known.get(self.identity)
        if stated is not None:
            if before in (None, stated):
                return stated, None
            return stated, (
                f"Note: {self.words} was charged to dataset {before!r} before. What it spent there does not count for "
                f"dataset {stated!r}."
            )
        if before is not None:
            return before, None
        if self.identity is None:
            raise InvalidInput(f"{self.words} has no name of its own. Say whose budget pays: --dataset NAME.")
        if self.name is None:
            self._refuse_evasion(ledger)
            return f"{self.words} {secrets.token_hex(4)}", None
        if self.name in known.values():
            raise InvalidInput(
                f"dataset {self.name!r} was charged for another file of that name. Say --dataset NAME: that name, if "
                "this is the same data, and another one if it is not. It is asked for once."
            )
        if self.name not in ledger.datasets():
            self._refuse_evasion(ledger)
        return self.name, None

    def _refuse_evasion(self, ledger: Ledger) -> None:
        """Refuse to open a new dataset unasked beside one that has a total."""
        limited = [name for name in ledger.datasets() if ledger.spent(name).total is not None]
        if limited:
            names = ", ".join(map(repr, limited[:5])) + (", …" if len(limited) > 5 else "")
            raise InvalidInput(
                f"the ledger does not know {self.words}, and keeps totals (of {names}). Say --dataset NAME: the name "
                "of one of them if its records are in this source too, and a new one if not. It is asked for once."
            )


def source_of(locations: list[str]) -> Source:
    """Return where a command's records come from."""
    if "-" in locations:
        return Source(None, None, "standard input")
    identity = _digest(sorted(map(_place, locations)))
    if len(locations) > 1:
        return Source(identity, None, "several sources")
    name = Path(urlsplit(locations[0]).path if "://" in locations[0] else locations[0]).name
    return Source(identity, name or None, f"the source {name!r}" if name else "a database")


def source_of_sketch(path: Path, sketch: Any) -> Source:
    """Return where a partial sketch comes from: its ids are those of every copy."""
    ids = getattr(sketch, "partial_ids", None)
    return Source(_digest(sorted(ids) if ids else [_place(str(path))]), path.name, f"the sketch {path.name!r}")


def _place(location: str) -> str:
    if "://" not in location:
        return str(Path(location).expanduser().resolve())
    parts = urlsplit(location)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _digest(places: list[str]) -> str:
    return hashlib.sha256("\n".join(["dpsketch source", *places]).encode()).hexdigest()
