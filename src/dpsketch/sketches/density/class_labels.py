"""The classes of a classifier: a public list of labels, and each record's place in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch.errors import InvalidInput

__all__ = ["READ_FROM_RECORDS", "codes_of", "listed", "public_labels"]

READ_FROM_RECORDS = "The list of labels was read from the records, and stated to be public knowledge."


def public_labels(classes: Any, y: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], str | None]:
    """Return the labels that ``classes=`` lists, and what a guarantee has to say of them."""
    if classes is None:
        raise InvalidInput(
            "say classes=: the public list of labels, or 'as_in_y' to state that the labels in y are public."
        )
    if not isinstance(classes, str):
        return listed(classes), None
    if classes != "as_in_y":
        raise InvalidInput("classes is a list of labels, or 'as_in_y'.")
    return listed(y), READ_FROM_RECORDS


def listed(labels: Any) -> npt.NDArray[Any]:
    """Return a public list of labels, each once."""
    found = np.unique(np.asarray(labels))
    if len(found) < 2:
        raise InvalidInput("a classifier needs at least two classes; there is 1 class.")
    return found


def codes_of(labels: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return the place of each record's label in the list."""
    codes = np.searchsorted(labels, y).clip(max=len(labels) - 1)
    if np.any(labels[codes] != y):
        raise InvalidInput("y holds a label that is not among classes=.")
    return codes
