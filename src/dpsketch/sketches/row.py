"""What a row of the table of kinds says, and how the parts that it names by path are loaded when they are used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from dpsketch.release import Release

__all__ = ["Answer", "Kind", "Option"]

Answer = Literal["keys", "top", "decode", "range", "point", "statement", "curve", "change"]


class Option(NamedTuple):
    """An option of the command line that shapes a sketch: its name in Python, its type, and its help."""

    name: str
    type: Any
    words: str


@dataclass(frozen=True)
class Kind:
    """One row of the table. A path is ``module:name``.

    Attributes
    ----------
    name, question : str
        How files and the command line call it, and which question it answers, in words.
    answers : tuple of str
        What may be asked of a release: counts of keys, the top of them, many decoded together, ranges, points, or
        nothing, since it is one statement; of published days, a curve over time and a change between windows, beside
        what the kind that they count answers.
    private_path : str
        Its :class:`~dpsketch.release.Release`.
    sensitive_path : str or None
        Its sketch; None where the kind exists as a release only.
    spec_path : str or None
        The spec from which an empty sketch is started; None where there is none.
    reads : {"key", "points"}
        Which columns of a record it counts.
    weighs : bool
        Whether records have weights.
    fingerprints : bool
        Whether fingerprints are all that it wants to know of text keys.
    whole_users : bool
        Whether all records of a user must come in one update, sorted together. One that bounds users when it is
        released takes them in any order.
    lists_keys : bool
        Whether its releases can list keys without being given candidates.
    collides : bool
        Whether keys share counters, in a memory of a fixed size; the memory of one where none do grows with the keys.
    released_once : bool
        Whether a second release of one sketch would not be private, so that the first must end it.
    release_options : tuple of Option
        Those that shape a release, where it takes more than a budget.
    release_path : str or None
        What makes of them arguments of ``release`` (see :attr:`release_arguments`).
    start_path : str or None
        A function that starts a sketch from the command line's options (see :attr:`start`); None for its constructor.
    options : tuple of Option
        The options that shape it.
    command : str or None
        The command line's name for it, where that is another kind's, which starts both.
    plan_path : str or None
        A function that proposes a shape (see :func:`dpsketch.plan.propose`); None if there is none to choose.
    pure : bool
        Whether it is made for pure privacy, so that a plan assumes δ = 0.
    questions : tuple of str
        For which questions plans compare it with other kinds: "keys", for which there are and how often each occurs.
    suits : str
        Where it is the right one of those, in words.
    instead : str or None
        The kind that answers the same question better where one party holds all keys, which `run` then names.
    daily : bool
        Whether it can be published day after day (:class:`~dpsketch.ContinualSketch`).
    day_path : str or None
        The sketch of one day, where it counts keys by name and takes a public list; else :attr:`sensitive` is it.
    window_path : str or None
        The release of some days together, where it is not :attr:`private`.
    """

    name: str
    question: str
    answers: tuple[Answer, ...]
    private_path: str
    sensitive_path: str | None = None
    spec_path: str | None = None
    reads: Literal["key", "points"] = "key"
    weighs: bool = True
    fingerprints: bool = False
    whole_users: bool = True
    lists_keys: bool = False
    collides: bool = True
    released_once: bool = False
    start_path: str | None = None
    options: tuple[Option, ...] = ()
    release_options: tuple[Option, ...] = ()
    release_path: str | None = None
    command: str | None = None
    plan_path: str | None = None
    pure: bool = False
    questions: tuple[str, ...] = ()
    suits: str = ""
    instead: str | None = None
    daily: bool = False
    day_path: str | None = None
    window_path: str | None = None

    @cached_property
    def private(self) -> type[Release]:
        """The release."""
        found: type[Release] = _named(self.private_path)
        return found

    @cached_property
    def sensitive(self) -> Any:
        """The sketch."""
        return _named(self.sensitive_path)

    @cached_property
    def spec(self) -> Any:
        """The spec."""
        return _named(self.spec_path)

    @property
    def has_command(self) -> bool:
        """Whether the command line makes sketches of this kind under its own name."""
        return self.spec_path is not None and self.command is None

    @property
    def planned(self) -> bool:
        """Whether a shape can be proposed for it, or there is none to choose."""
        return self.plan_path is not None or self.has_command

    @cached_property
    def start(self) -> Callable[..., Any]:
        """The function ``start(unit, given, columns=…, key_type=…)``, which returns an empty sketch.

        ``given`` are those of :attr:`options` that were stated, ``columns`` the names of a point's coordinates.
        """
        function: Callable[..., Any] = _named(self.start_path) or self._construct
        return function

    def _construct(self, unit: Any, given: dict[str, Any], *, columns: tuple[str, ...], key_type: Any) -> Any:
        states = key_type is not None and any(field.name == "key_type" for field in fields(self.spec))
        return self.sensitive(unit=unit, **({"key_type": key_type} if states else {}), **given)

    @cached_property
    def release_arguments(self) -> Callable[..., dict[str, Any]]:
        """What is called as ``release_arguments(spec, given, key_type)`` and returns arguments of ``release``.

        ``given`` are those of :attr:`release_options` that were stated.
        """
        function: Callable[..., dict[str, Any]] = _named(self.release_path)
        return function

    @cached_property
    def day(self) -> Any:
        """The sketch of one day of a stream."""
        return _named(self.day_path or self.sensitive_path)

    @cached_property
    def window(self) -> Any:
        """The release of some days of a stream together."""
        return _named(self.window_path or self.private_path)

    @cached_property
    def plan(self) -> Callable[..., Any] | None:
        """The function ``plan(amount, guess, target_error=…)``, which takes further options by name."""
        function: Callable[..., Any] | None = _named(self.plan_path)
        return function


def _named(path: str | None) -> Any:
    """Load what a path names; None is nothing."""
    if path is None:
        return None
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
