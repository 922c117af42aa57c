"""Hold sensitive sketches that know of which others they were made, so that none is counted twice.

A sketch has a random id from its start, and a merged one those of its parts; a merge that shares one is refused. The
ids say nothing about the records. They are in ``.sketch`` files and never in a release.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dpsketch import files
from dpsketch.bounding import Cut
from dpsketch.changes import Changeable
from dpsketch.core.account import Account, Prepaid
from dpsketch.errors import FileRefused, InvalidInput, SpecMismatch
from dpsketch.hashing import KeyType
from dpsketch.noise import random_id
from dpsketch.processes import OneProcess
from dpsketch.sketches.specs import refuse_choice

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger


_ARRAY = "partials"
_ID_BYTES = 16
# Number of names that stand for a sketch in public, however many partials it has.
_NAMES = 64


class Partial(OneProcess, Changeable, ABC):
    """A sensitive sketch that is written and read inside the trust boundary, and counts no other one twice."""

    kind: ClassVar[str]  # the name of its row in the table of kinds
    chooses_bounds: ClassVar[bool] = False  # whether its releases can choose the bound on a user's keys
    in_order: ClassVar[bool] = False  # whether it depends on the order of records, and on the partial of each

    _partials: frozenset[str]
    # The part that was charged before the records came, as for a stream; None where a release pays.
    _prepaid: Prepaid | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Give every sketch, however it is started, an id of its own."""
        if not cls.chooses_bounds:
            refuse_choice(kwargs.get("unit"))
        sketch = super().__new__(cls)
        sketch._partials = frozenset({random_id()})
        return sketch

    @abstractmethod
    def _to_document(self) -> files.Document:
        """Return everything but the ids, sensitive content included."""

    @classmethod
    @abstractmethod
    def _from_document(cls, document: files.Document) -> Self:
        """Rebuild a sensitive sketch, but for its ids, from a decoded file."""

    @property
    def partial_ids(self) -> frozenset[str]:
        """The random ids of this sketch and of all that were merged into it, 32 hexadecimal digits each."""
        return self._partials

    @property
    def source_key_type(self) -> KeyType | None:
        """What keys of a source are read as, where the spec says."""
        spec: Any = getattr(self, "spec", None)
        stated: KeyType | None = getattr(spec, "key_type", None)
        return stated

    def _account(self, ledger: Ledger | str | None, dataset: str | None, part: str | None) -> Account:
        """Return where a release is charged; a part's partials are named, as none can be in two parts."""
        return Account(ledger, dataset, part, () if part is None else _charged_names(self._partials))

    def _protects_users(self, users: Any, disjoint_users: bool, counts: Any = None) -> bool:
        """Say whether the unit is a user, and refuse columns that go with the other unit."""
        spec: Any = getattr(self, "spec", None)
        if spec.unit.level == "record":
            if users is not None or disjoint_users:
                raise InvalidInput("this sketch protects records: users= goes with unit=dps.per_user(max_keys=…).")
            return False
        if users is None:
            raise InvalidInput("this sketch protects users: say users= as well, whose each record is.")
        if counts is not None:
            raise InvalidInput("counts= are records of nobody, and this sketch protects users: use weights=.")
        return True

    def _accept_partial(self, other: Partial) -> None:
        """Refuse a partial that was interrupted or overlaps; register one that a prepaid part is about to absorb.

        This is the last check of every merge: a partial that is refused later would stay registered.
        """
        other._refuse_broken()
        if other is self:
            raise SpecMismatch("cannot merge a sketch with itself: each record would count, and show, twice.")
        if not self._partials.isdisjoint(other._partials):
            raise InvalidInput(
                "cannot merge: this partial is already in the sketch (it, a copy of it, or a merged sketch that holds "
                "it), and each of its records would count, and show, twice. Merge each partial once."
            )
        if self._prepaid is not None:
            self._prepaid.register(_charged_names(other._partials))

    def _use_ledger(self, ledger: Ledger | str | None) -> None:
        """Name the ledger that was charged for a sketch which was read from a file."""
        if ledger is not None and self._prepaid is not None:
            self._prepaid = replace(self._prepaid, ledger=ledger)

    def update_in_turn(self, batches: Iterable[tuple[Any, dict[str, Any]]], cuts: Iterable[Cut] = ()) -> None:
        """Call ``update`` with one batch after the other, as one change; ``cuts`` were made of them before that.

        Whatever ends it on the way, be it a batch that is refused, leaves the sketch as it was if nothing was added
        yet; else the sketch refuses to go on, because the first batches would count again if all were given again.
        """
        for records, given in batches:
            self._add(records, **given)
        for cut in cuts:
            self._note_cut(cut)

    def _add(self, *records: Any, **given: Any) -> None:
        """Add records as ``update`` does, as part of a change."""
        raise NotImplementedError

    def _note_cut(self, cut: Cut) -> None:
        """Note, for the data holder's eyes, what was cut of records before they came to ``update``."""

    def to_sensitive_bytes(self) -> bytes:
        """Return the sketch with its content, for use inside the trust boundary only."""
        return files.encode(self._completed(self._to_document()))

    def to_shared_bytes(self) -> bytes:
        """Return the sketch as a start for others that will merge with it: with all that they must share."""
        return self.to_sensitive_bytes()

    def save_sensitive(self, path: str | PathLike[str]) -> None:
        """Write the sketch with its content to a ``.sketch`` file that only its owner may read."""
        files.write(path, self._completed(self._to_document()))

    def _completed(self, document: files.Document) -> files.Document:
        """Return a document with what every kind keeps beside its counts."""
        return replace(document, arrays={**document.arrays, _ARRAY: ids_array(self._partials)})

    @classmethod
    def from_document(cls, document: files.Document) -> Self:
        """Rebuild a sensitive sketch from a decoded file."""
        sketch = cls._from_document(document)
        sketch._partials = stored_ids(document, _ARRAY)
        return sketch

    @classmethod
    def from_sensitive_bytes(cls, data: bytes) -> Self:
        """Rebuild a sketch from :meth:`to_sensitive_bytes`."""
        return cls.from_document(files.decode(data, allow_sensitive=True))


def ids_array(ids: Iterable[str]) -> list[bytes]:
    """Return ids as an array of a file, in an order that says nothing."""
    return sorted(bytes.fromhex(each) for each in ids)


def stored_ids(document: files.Document, name: str) -> frozenset[str]:
    """Read the ids of a file; anyone may have written it."""
    ids = document.arrays.get(name)
    listed: list[Any] = list(ids) if isinstance(ids, list) else []
    whole = all(isinstance(each, bytes) and len(each) == _ID_BYTES for each in listed)
    if not whole or not 0 < len(listed) == len(set(listed)):
        raise FileRefused(f"the file's {name} are not ids that dpsketch writes.")
    return frozenset(each.hex() for each in listed)


def public_names(ids: Iterable[str]) -> tuple[str, ...]:
    """Return names by which two public files can be told to hold one partial, and nothing else about either.

    Privacy
    -------
    A name is a digest of a random id, which nobody can turn back. There are always equally many: fewer partials are
    filled up with names that nothing has, since how many there are may follow from how many records there were. Of
    more partials the first ones in an order that only their ids tell have names. So two files of one sketch, or of
    up to 64 partials each, are always told; of more, those that have a large part of their partials in common.
    """
    known = sorted(ids, key=lambda each: _hashed("order", each))
    names = [_hashed("name", each) for each in known[:_NAMES]]
    return tuple(sorted([*names, *(random_id() for _ in range(_NAMES - len(names)))]))


def _charged_names(ids: Iterable[str]) -> tuple[str, ...]:
    """Return a name of each partial for a ledger."""
    return tuple(sorted(_hashed("charge", each) for each in ids))


def _hashed(purpose: str, partial: str) -> str:
    return hashlib.sha256(f"dpsketch partial {purpose} {partial}".encode()).hexdigest()[: 2 * _ID_BYTES]


def integer_array(
    document: files.Document, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike = np.int64
) -> npt.NDArray[Any]:
    """Return a named integer array of the shape that the spec prescribes; what is sensitive may be written to."""
    array = document.arrays.get(name)
    kinds = "u" if dtype == np.uint64 else "iu"
    if not isinstance(array, np.ndarray) or array.dtype.kind not in kinds or array.shape != shape:
        raise FileRefused(f"the file's array {name!r} does not have the shape that its spec prescribes.")
    if dtype == np.int64 and array.dtype == np.uint64 and array.size and int(array.max()) >= 2**63:
        raise FileRefused(f"the file's array {name!r} has integers that signed ones of 64 bits cannot be.")
    return array.astype(dtype, copy=document.sensitive)
