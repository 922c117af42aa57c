"""What the files of several kinds of sensitive sketch have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpsketch.core.account import Prepaid
from dpsketch.errors import FileRefused
from dpsketch.files import Document

if TYPE_CHECKING:
    from dpsketch.ledger import Charge

__all__ = ["integer_array", "prepaid_header", "read_prepaid"]


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


def integer_array(
    document: Document, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike = np.int64
) -> npt.NDArray[Any]:
    """Return a named integer array of the shape that the spec prescribes; what is sensitive may be written to."""
    array = document.arrays.get(name)
    kinds = "u" if dtype == np.uint64 else "iu"
    if not isinstance(array, np.ndarray) or array.dtype.kind not in kinds or array.shape != shape:
        raise FileRefused(f"the file's array {name!r} does not have the shape that its spec prescribes.")
    if dtype == np.int64 and array.dtype == np.uint64 and array.size and int(array.max()) >= 2**63:
        raise FileRefused(f"the file's array {name!r} has integers that signed ones of 64 bits cannot be.")
    return array.astype(dtype, copy=document.sensitive)
