"""What the files of every kind have in common: the header of a release, and arrays of a known shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from dpsketch import accounting
from dpsketch.core.account import Prepaid
from dpsketch.errors import FileRefused
from dpsketch.files import Array, Document
from dpsketch.privacy import Guarantee, Unit
from dpsketch.release import DrawnRelease
from dpsketch.sketches.specs import Spec

if TYPE_CHECKING:
    from dpsketch.ledger import Charge

__all__ = [
    "counter_array",
    "integer_array",
    "prepaid_header",
    "read_charge",
    "read_guarantee",
    "read_prepaid",
    "real_array",
    "release_document",
    "release_header",
    "stored_counters",
    "stored_or_real",
    "wide_when_used",
]

T = TypeVar("T")


def release_header(spec: dict[str, Any], guarantee: Guarantee, charge: Charge | None, **more: Any) -> dict[str, Any]:
    """Return the header of a release: its spec, guarantee and ledger row, and what its kind adds."""
    return {
        "spec": spec,
        "guarantee": guarantee.to_json(),
        "charge": None if charge is None else charge.to_json(),
        **more,
    }


def release_document(release: DrawnRelease, spec: Spec, arrays: dict[str, Array], **more: Any) -> Document:
    """Return a release as a document of the file format, with what its kind adds to the header."""
    header = release_header(spec.to_json(), release.guarantee, release.charge, **more)
    return Document(release.kind, False, header, arrays)


def read_guarantee(document: Document) -> Guarantee:
    """Read the guarantee of a release; refuse one that no release can have, or that is for another unit.

    Whoever forges a file can promise anything. What is checked is that the promise can be printed and composed.
    """
    promise = Guarantee.from_json(document.header["guarantee"])
    numbers = [promise.epsilon, promise.delta, *([] if promise.rho is None else [promise.rho])]
    sensible = all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers)
    sensible = sensible and isinstance(promise.mechanism, str) and isinstance(promise.caveat, str | None)
    sensible = sensible and isinstance(promise.holds, bool) and bool(promise.costs)
    if (
        not sensible
        or not (promise.epsilon >= 0 and 0 <= promise.delta < 1)
        or (promise.rho is not None and promise.rho <= 0)
    ):
        raise FileRefused("the file's guarantee is not one that dpsketch writes.")
    for cost in promise.costs:
        accounting.check_cost(cost)
    spec = document.header.get("spec")
    if isinstance(spec, dict) and Unit.from_json(spec["unit"]) != promise.unit:
        raise FileRefused("the file's guarantee is for another unit than its spec.")
    mechanism = document.header.get("mechanism")
    if promise.unit.chosen and not (isinstance(mechanism, dict) and "bound" in mechanism):
        raise FileRefused("the file's guarantee speaks of a chosen bound, and the file shows no choice.")
    return promise


def read_charge(document: Document) -> Charge | None:
    """Read the ledger row of a release, if it has one."""
    charge = document.header["charge"]
    if charge is None:
        return None
    from dpsketch.ledger import Charge

    return Charge.from_json(charge)


def prepaid_header(prepaid: Prepaid | None) -> dict[str, Any]:
    """Return what the header of a sensitive sketch says of the part that was charged for it."""
    return {} if prepaid is None else {"part": prepaid.part}


def read_prepaid(document: Document, charge: Charge | None) -> Prepaid | None:
    """Read the part that was charged for a sensitive sketch; its ledger has to be named again."""
    part = document.header.get("part")
    if part is None:
        return None
    if charge is None or not isinstance(part, str):
        raise FileRefused("the file's part of a dataset is not one that dpsketch writes.")
    return Prepaid(part, charge)


def integer_array(document: Document, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return a named integer array of the shape that the spec prescribes; what is sensitive may be written to."""
    array = document.arrays.get(name)
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu" or array.shape != shape:
        raise FileRefused(f"the file's array {name!r} does not have the shape that its spec prescribes.")
    if array.dtype == np.uint64 and array.size and int(array.max()) >= 2**63:
        raise FileRefused(f"the file's array {name!r} has integers that signed ones of 64 bits cannot be.")
    return array.astype(np.int64, copy=document.sensitive)


def stored_counters(document: Document, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return integers of a release as narrow as the file has them, for a field that is :func:`wide_when_used`."""
    array = document.stored(name)
    if isinstance(array, np.ndarray) and array.dtype.kind in "iu" and array.itemsize < 8 and array.shape == shape:
        return array
    return integer_array(document, name, shape)


def wide_when_used(*names: str) -> Callable[[type[T]], type[T]]:
    """Let fields of a release hold the integers of a file as narrow as they are stored, until they are asked for.

    Whoever asks gets integers of 64 bits, or the real numbers that a field was given, and nobody may change them.
    """

    def decorate(release: type[T]) -> type[T]:
        for name in names:
            setattr(release, name, _Wide(release.__dict__[name]))
        return release

    return decorate


class _Wide:
    """A field that is made wide when it is first asked for."""

    def __init__(self, slot: Any) -> None:
        self._slot = slot

    def __get__(self, release: Any, kind: type[Any]) -> Any:
        array = self._slot.__get__(release, kind)
        if release is not None and array.dtype.kind in "iu" and array.dtype != np.int64:
            array = array.astype(np.int64)
            self.__set__(release, array)
        return array

    def __set__(self, release: Any, array: npt.NDArray[Any]) -> None:
        array.flags.writeable = False
        self._slot.__set__(release, array)


def counter_array(document: Document, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return a named array of counters: integers or, in an answer of a stream, real numbers."""
    return real_array(document, name, shape) if _is_real(document, name) else integer_array(document, name, shape)


def stored_or_real(document: Document, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return what :func:`counter_array` does, integers as narrow as the file has them."""
    return real_array(document, name, shape) if _is_real(document, name) else stored_counters(document, name, shape)


def _is_real(document: Document, name: str) -> bool:
    array = document.stored(name)
    return isinstance(array, np.ndarray) and array.dtype.kind == "f"


def real_array(document: Document, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Return a named array of finite real numbers of the shape that the spec prescribes."""
    array = document.arrays.get(name)
    if not isinstance(array, np.ndarray) or array.dtype != np.float64 or array.shape != shape:
        raise FileRefused(f"the file's array {name!r} does not have the shape that its spec prescribes.")
    if not np.isfinite(array).all():
        raise FileRefused(f"the file's array {name!r} holds what is no number.")
    return np.array(array, np.float64)
