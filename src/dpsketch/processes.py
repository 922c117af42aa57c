"""Objects that work only in the process that made them.

``os.fork`` copies the memory of a process, and with it a budget that is left, a secret, or a day that was not published
yet. If parent and child both went on, one budget would be spent twice, and the same records would be shown twice under
noise that was calibrated for once. So the copy refuses.

A process is known by the number of forks that lead to it from the first one, not by its id, which the system may use
again. The number grows with every fork, so it differs between the process that made an object and all its descendants.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn, Self

from dpsketch.errors import ReleaseRefused, SensitiveData

__all__ = ["OneProcess"]

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_count_fork)


class OneProcess:
    """Base of objects of which there must be one: it refuses to be pickled or copied, and to work in a forked child."""

    __slots__ = ("_made_after",)

    _made_after: int

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Remember the process, however the object is made."""
        made = super().__new__(cls)
        made._made_after = _forks
        return made

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise SensitiveData(
            f"a {type(self).__name__} cannot be pickled or copied: both could be used. release() a sketch to publish "
            "it, or ship it as a partial with to_sensitive_bytes()."
        )

    def _refuse_copy(self) -> None:
        """Refuse to go on in a child of the process that made this object."""
        if self._made_after != _forks:
            raise ReleaseRefused(
                "this object was made before a fork, and this child process has a copy of it: both could spend one "
                "budget, or publish the same records. Use it in the process that made it. A child makes sketches of "
                "its own, which the parent merges; a local Client with a path shares its budget with children."
            )
