"""How a release gets from a sketch to its file: paid for, drawn, written, and only then there.

The order keeps two promises at every moment a process can die at. No payment is lost while it can be kept, and none
pays for two draws of which someone may have seen the first:

1. The target's room is taken (:class:`~dpsketch.cli.spool.Spool`).
2. The ledger is charged. The charge is open: nothing was written for it.
3. The noise is drawn, in memory. The room is made to fit.
4. The charge is closed. Until here, the same command draws again for the same charge.
5. The release is written to its hidden file, down to the disk. From here on, ``dpsketch recover`` finishes.
6. A sketch that may be released once is destroyed.
7. The file takes its name. Only then is anything printed.
"""

from __future__ import annotations

import getpass
import os
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsketch.cli.output import say
from dpsketch.cli.spool import Ending, Spool, reason_of
from dpsketch.errors import DpsketchError, FileRefused, ReleaseNotWritten, ReleaseRefused

if TYPE_CHECKING:
    from dpsketch.cli.budget import BudgetOptions, Target
    from dpsketch.ledger import Origin, Payment

__all__ = ["deliver", "draw", "refuse_lasting", "room_of", "save"]

# A release is about as large as its table; this is for its header and its alignment.
_HEADER_ROOM = 1 << 16


def room_of(sketch: Any) -> int:
    """Return about how many bytes a file of this sketch or of its release takes."""
    return int(sketch.spec.memory) + _HEADER_ROOM


def deliver(
    sketch: Any, budget: BudgetOptions, target: Target, spool: Spool, *, columns: str = "", repeatable: bool = False,
    ends: Sequence[Ending] = (), options: dict[str, Any] | None = None,
) -> Any:  # fmt: skip
    """Release a sketch into a file, and return the release.

    Parameters
    ----------
    sketch, budget, target
        What is released, for what, and who pays.
    spool : Spool
        The place that was reserved.
    columns : str
        Which columns it was made from, for readers of the ledger.
    repeatable : bool
        Whether the sketch came from a file: it can then be released again.
    ends : sequence of Ending
        The files that must be destroyed before the release is there.
    options : dict, optional
        More arguments of ``release``.
    """
    from dpsketch import files

    payment = _payment(sketch, budget, target, options or {}, _origin(spool.output, columns))
    place, closed = spool, False
    try:
        account = {"ledger": payment, "dataset": target.dataset, "part": target.part}
        private = sketch.release(**budget.amount, **account, **(options or {}))
        data = files.encode(private.to_document())
        try:
            spool.fit(data, ends)
        except OSError as error:
            if payment is None or repeatable:
                raise
            place = _elsewhere(spool.output, data, payment, error)
        if payment is not None:
            payment.close()
        closed = True
        place.write(data, sensitive=False)
        place.finish()
    except BaseException as error:
        if place is not spool and not place.complete:
            place.discard()
        paid = payment is not None and payment.made is not None
        if isinstance(error, ReleaseRefused) or not (paid or place.complete):
            raise
        raise ReleaseNotWritten(_what_is_left(payment, place, closed, repeatable, error)) from error
    if place is not spool:
        raise ReleaseNotWritten(
            f"{spool.output} could not be written: its disk has no room for it. The release is paid for "
            f"({_charge_words(payment)}) and whole, as {place.output}: move it to where it belongs."
        )
    if payment is not None and payment.resumed:
        say(f"Used {_charge_words(payment)} again: it was made for this release, and nothing was written then.")
    return private


def draw(
    sketch: Any, budget: BudgetOptions, target: Target, *, columns: str = "", options: dict[str, Any] | None = None
) -> Any:
    """Release a sketch that is printed and kept nowhere, and return the release; arguments as for :func:`deliver`."""
    payment = _payment(sketch, budget, target, options or {}, _origin("standard output", columns))
    account = {"ledger": payment, "dataset": target.dataset, "part": target.part}
    try:
        private = sketch.release(**budget.amount, **account, **(options or {}))
        if payment is not None:
            payment.close()
    except BaseException as error:
        if isinstance(error, ReleaseRefused) or payment is None or payment.made is None:
            raise
        lost = f"{_charge_words(payment)} was made, and its release was lost ({_reason(error)}). The charge stays."
        raise ReleaseNotWritten(lost) from error
    return private


def _payment(
    sketch: Any, budget: BudgetOptions, target: Target, options: dict[str, Any], origin: Origin
) -> Payment | None:
    if target.ledger is None:
        return None
    from dpsketch.ledger import Payment, binding_of

    # A sketch of a version without ids cannot be known again: its payment is for this once.
    ids = getattr(sketch, "partial_ids", None) or frozenset({secrets.token_hex(16)})
    specs = [spec.to_json() for spec in getattr(sketch, "specs", [sketch.spec])]
    named = {name: repr(value) for name, value in options.items()}
    return Payment(target.ledger, binding_of(ids, budget=budget.amount, specs=specs, options=named), origin)


def _origin(output: Path | str, columns: str) -> Origin:
    from dpsketch.ledger import Origin

    try:
        who = getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number that has no name
        who = ""
    # A file's name may hold bytes that are no text, which no database takes.
    told = (each.encode(errors="backslashreplace").decode() for each in (str(output), columns, who))
    return Origin(*told)


def _elsewhere(output: Path, data: bytes, payment: Payment, full: OSError) -> Spool:
    """Find room for a paid release whose own disk has none, as nothing could draw it again."""
    for folder in (payment.folder, Path(tempfile.gettempdir())):
        if folder is None:
            continue
        try:
            place = Spool.reserve(folder / f"{output.stem}-{secrets.token_hex(4)}{output.suffix}", overwrite=False)
        except FileRefused:
            continue
        try:
            place.fit(data)
        except OSError:
            place.discard()
            continue
        return place
    raise full


def _what_is_left(payment: Payment | None, place: Spool, closed: bool, repeatable: bool, error: BaseException) -> str:
    if place.complete:
        return f"{_not_in_place(place, error)} Nothing is charged again."
    reason = _reason(error)
    charge = _charge_words(payment)
    if closed:
        return (
            f"{charge} was made, and its release was lost while it was written ({reason}). Part of it may have been "
            "seen, so it is not drawn again, and the charge stays."
        )
    lost = f"{charge} was made, and nothing of its release was written ({reason})."
    if repeatable:
        return f"{lost} The same command, with the same sketch, budget and options, uses that charge again."
    return f"{lost} What it was made from is gone with this command, so the release is lost and the charge stays."


def _not_in_place(place: Spool, error: BaseException) -> str:
    """Say that a whole file did not get its name, and how it gets it."""
    return (
        f"{place.output} is whole but not in place ({_reason(error)}). `dpsketch recover {place.output}` puts it in "
        "place."
    )


def _charge_words(payment: Payment | None) -> str:
    if payment is None or payment.made is None:
        return "no charge"
    return f"charge {payment.made.id} to dataset {payment.made.dataset!r}"


def _reason(error: BaseException) -> str:
    match error:
        case DpsketchError():
            return str(error).rstrip(".")
        case OSError():
            return reason_of(error)
        case KeyboardInterrupt() | SystemExit():
            return "interrupted"
        case MemoryError():
            return "not enough memory"
        case _:
            return type(error).__name__


def refuse_lasting(path: Path) -> None:
    """Refuse to begin with a file that will have to be destroyed and cannot be."""
    if not (os.access(path, os.W_OK) and os.access(Path(os.path.realpath(path)).parent, os.W_OK)):
        raise FileRefused(f"{path} must be destroyed when it is used, and may not be written. Make it writable.")


def save(spool: Spool, data: bytes, *, sensitive: bool, ends: Sequence[Ending] = ()) -> None:
    """Write a file that nothing was paid for."""
    try:
        spool.fit(data, ends)
        spool.write(data, sensitive=sensitive)
        spool.finish()
    except BaseException as error:
        if not spool.complete:
            raise
        raise ReleaseNotWritten(_not_in_place(spool, error)) from error
