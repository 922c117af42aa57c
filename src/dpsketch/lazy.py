"""Names that load when they are first used, so that whoever needs one of them waits for that one only."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["names"]


def names(package: str, /, **homes: str) -> Callable[[str], Any]:
    """Return a package's ``__getattr__``, which loads what is asked for.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    **homes : str
        For each of its modules the names that it holds, in one text; under "" those that are modules themselves.
    """
    home_of = {name: home for home, held in homes.items() for name in held.split()}

    def find(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not home_of[name]:
            return import_module(f"{package}.{name}")
        value = getattr(import_module(f"{package}.{home_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find
