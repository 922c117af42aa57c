"""Changes that happen as a whole, or end what they change.

An update that was interrupted has counted some of its records and not others. Tried again it would count the first ones
twice, under noise that was calibrated for once; and nobody can tell afterwards which ones they were. So whatever is
interrupted after it began to change refuses everything from then on, and what was interrupted before is as it was.

**How.** A class that derives from :class:`Changeable` has all its public methods guarded, without a word in it: a mark
refuses them. A method that changes the object checks all it was given, calls ``_begin_change``, which sets the mark,
and then changes what it has to. Only a clean return of the public method lifts the mark; an exception on the way, of
whatever kind and at whatever moment, leaves it. Lifting it is the last thing that is done before the caller goes on.

One thread at a time is in such a method. A method that is given another such object, as a merge is, holds both, so that
none is read in the middle of its change; locks are taken in one order by all, so that no two wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from threading import RLock, get_ident
from types import FunctionType, TracebackType
from typing import Any, Self

from dpsketch.errors import SketchBroken

__all__ = ["Changeable"]


class Changeable:
    """What refuses to go on once a change of it was interrupted."""

    # The thread that is changing the object, or was when it was interrupted.
    _changed_by: int | None
    # One thread at a time: what a method checks must still hold when it changes something.
    _turn: RLock

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Set the mark from the start: that it is there must not tell that something was counted."""
        unchanged = super().__new__(cls)
        unchanged._changed_by = None
        unchanged._turn = RLock()
        return unchanged

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the lock, of which a copy gets its own."""
        return {name: value for name, value in vars(self).items() if name != "_turn"}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, member in list(vars(cls).items()):
            if isinstance(member, FunctionType) and not name.startswith("_"):
                setattr(cls, name, _guarded(member))

    def _begin_change(self) -> None:
        """Set the mark: everything is checked, and the next line changes something."""
        self._changed_by = get_ident()

    def _undo_change(self) -> None:
        """Lift the mark: what was changed since it was set has been put back."""
        self._changed_by = None

    def _refuse_copy(self) -> None:
        """Refuse to go on as a copy, where there must be one; what is public may be copied."""

    def _refuse_broken(self) -> None:
        if self._changed_by is not None:
            raise SketchBroken(
                f"a change of this {type(self).__name__} was interrupted (or another thread is at it): some of its "
                "records may be counted and others not, and tried again they would count twice. Start anew, from the "
                "last partial that was saved."
            )


class _Guard:
    """Lifts the mark that its own thread has set, if what it guards returns."""

    __slots__ = ("_guarded", "_held", "_locks", "_thread")

    def __init__(self, guarded: Changeable, given: Iterable[object]) -> None:
        self._guarded = guarded
        self._thread = get_ident()
        together = {id(each): each for each in (guarded, *given) if isinstance(each, Changeable)}
        for each in together.values():  # before its lock, which a thread of the parent may have held at the fork
            each._refuse_copy()
        self._locks = [together[place]._turn for place in sorted(together)]
        self._held: list[RLock] = []

    def __enter__(self) -> None:
        try:
            for lock in self._locks:
                lock.acquire()
                self._held.append(lock)
            self._guarded._refuse_broken()
        except BaseException:
            self._release()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()
        if kind is None and self._guarded._changed_by == self._thread:
            self._guarded._changed_by = None

    def _release(self) -> None:
        while self._held:
            self._held.pop().release()


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def guarded(self: Changeable, *args: Any, **kwargs: Any) -> Any:
        with _Guard(self, (*args, *kwargs.values())):
            return method(self, *args, **kwargs)

    return guarded
