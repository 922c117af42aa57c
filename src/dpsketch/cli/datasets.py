"""Whose budget pays where nobody says: a dataset's name is asked for once, and remembered beside the ledger.

A file's name is no identity. A copy of a file has another name, and would be another dataset with a fresh budget; two
files of one name in two folders, or whatever comes through standard input, may have nothing in common. What the file
holds is no identity either: it changes, and a digest of it would be one of the records. So a source is known by *where
it lies* (a file by its full path, a database by its address without user and password), and a partial sketch by the
random ids in it, which a copy has as well. The first time that a source is charged, the ledger remembers to which
dataset. A source that it does not know gets the name of its only file (several files, or a database, a random one) as
long as there is no total in the ledger that could be evaded by that. From then on it must be stated.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dpsketch.errors import InvalidInput

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger

__all__ = ["Source", "source_of", "source_of_sketch"]


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
