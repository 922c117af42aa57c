"""NumPy's scalars in the place of Python's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np


def given(value: Any, kind: type[np.generic]) -> Any:
    """Return a number as NumPy's, of a kind that it fits; other values as they are."""
    if isinstance(value, list | tuple):
        return type(value)(given(each, kind) for each in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if isinstance(value, float):
        return kind(value) if issubclass(kind, np.floating) else np.float64(value)
    fitting = kind if issubclass(kind, np.integer) else np.int64
    limits = np.iinfo(fitting)
    return fitting(value) if limits.min <= value <= limits.max else np.int64(value)


def plain(value: Any, kind: type[np.generic]) -> Any:
    """Return the Python number that :func:`given` stands for."""
    if isinstance(value, list | tuple):
        return type(value)(plain(each, kind) for each in value)
    shown = given(value, kind)
    return shown.item() if isinstance(shown, np.generic) else shown
