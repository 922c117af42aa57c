"""Names that load when they are first used, so that whoever needs one of them waits for that one only."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # as typing has it, which takes longer to load than this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["arrow_compute", "names"]


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


class _Later:
    """A module that is loaded when something in it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return _Later, (self._name,)  # a copy that has no name yet would ask itself for it for ever

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value


# Loading it makes three hundred functions, of which most commands use none.
arrow_compute: Any = _Later("pyarrow.compute")
