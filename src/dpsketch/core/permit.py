"""The only way to noise: laws are checked and paid for, and each is then drawn once.

1. :meth:`Permit.pay` checks that the laws are for the kind's own tables and neighbour relation, and that they cost no
   more than was asked for. It charges the ledger and returns a permit.
2. :meth:`Permit.draw` draws a law through a :class:`Handle`. The handle gives the law its own noise, by the name of a
   slot, and each piece of a slot once. A law that was not paid for is refused.
3. :meth:`Permit.drawn` composes the guarantee from the laws, and refuses as long as a slot of one was not drawn.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsketch.arrays import Integers
from dpsketch.core.account import Account
from dpsketch.core.drawn import Drawn, Part, Plan, Receipt, promise
from dpsketch.core.laws import Arrays, Law
from dpsketch.errors import ReleaseRefused
from dpsketch.noise import noise_is_for_tests
from dpsketch.privacy import CARELESS_DELTA, Budget, Guarantee
from dpsketch.processes import OneProcess

if TYPE_CHECKING:
    from dpsketch.ledger import Charge

__all__ = ["Handle", "Permit"]


class Permit(OneProcess):
    """A release that is paid for: noise may be drawn from here on. Made by :meth:`pay`."""

    __slots__ = ("_drawn", "_for_tests", "_found", "_laws", "_plan", "_receipt", "_turn")

    _plan: Plan
    _receipt: Receipt
    _laws: dict[str, Law]
    _drawn: dict[tuple[str, str], set[Hashable]]
    _found: dict[str, Arrays]
    _for_tests: bool
    _turn: Lock

    def __init__(self) -> None:
        raise ReleaseRefused("a permit is paid for: use Permit.pay().")

    @classmethod
    def pay(
        cls,
        plan: Plan,
        laws: Sequence[Law],
        asked: Budget,
        account: Account,
        *,
        note: str,
        once: Sequence[str] = (),
        for_tests: bool = False,
    ) -> Permit:
        """Check the laws, charge them to a dataset's budget, and return the permit to draw them.

        Parameters
        ----------
        plan : Plan
            The kind's public spec.
        laws : sequence of Law
            Everything that the release draws.
        asked : Budget
            The most that the laws may cost together.
        account : Account
            Where to charge.
        note : str
            What the ledger's row says of the release; public.
        once : sequence of str
            Names of what only one release may be made of, such as a secret. A ledger refuses to pay for it again.
        for_tests : bool
            Whether a secret that was drawn before came from a seeded source.
        """
        if not all(law.slots() for law in laws):
            raise ReleaseRefused("a law that draws nothing has no permit; nothing was charged.")
        receipt = Receipt(asked, tuple(laws))
        guarantee = promise(plan, receipt)
        if guarantee.delta >= CARELESS_DELTA:
            # Audits and tests draw at a large δ to see rare events, so Python warns where the command line refuses.
            warnings.warn(
                f"δ = {guarantee.delta:g} protects hardly anyone: a release that shows each unit whole with this "
                "probability would keep the promise. Choose one far below one over the number of units, such as 1e-6.",
                stacklevel=2,
            )
        charge = account.charge(guarantee.costs, plan.unit, note, once)
        return cls._of(plan, Receipt(asked, tuple(laws), charge=charge), (), for_tests)

    @classmethod
    def restored(cls, plan: Plan, receipt: Receipt, drawn: Iterable[tuple[str, str, Hashable]]) -> Permit:
        """Take up a permit that a sensitive file holds: its laws are checked again, and what was drawn stays drawn."""
        promise(plan, receipt)
        return cls._of(plan, receipt, drawn, not receipt.holds)

    @classmethod
    def _of(cls, plan: Plan, receipt: Receipt, drawn: Iterable[tuple[str, str, Hashable]], for_tests: bool) -> Permit:
        permit = cls.__new__(cls)
        permit._plan, permit._receipt, permit._for_tests = plan, receipt, for_tests
        permit._laws = {law.name: law for law in receipt.laws}
        permit._drawn, permit._found, permit._turn = {}, {}, Lock()
        for name, slot, piece in drawn:
            permit._drawn.setdefault((name, slot), set()).add(piece)
        return permit

    @property
    def charge(self) -> Charge | None:
        """The ledger's row, if a ledger was charged."""
        return self._receipt.charge

    @property
    def laws(self) -> tuple[Law, ...]:
        """The laws that were paid for."""
        return self._receipt.laws

    @property
    def for_tests(self) -> bool:
        """Whether something was drawn from a seeded source."""
        return self._for_tests

    def draw(self, law: Law, state: Any) -> Arrays:
        """Return what a law publishes of a sensitive state.

        Raises
        ------
        ReleaseRefused
            If the law was not paid for, was drawn before, or leaves one of its slots out.
        """
        self._refuse_copy()
        if self._laws.get(law.name) != law:
            raise ReleaseRefused(f"{law.name}: this law was not paid for, and must not be drawn.")
        before = {slot: len(self._pieces(law, slot)) for slot in law.slots() if law.at_once}
        found = law.draw(state, Handle._of(self, law))
        for slot, count in before.items():
            if len(self._pieces(law, slot)) == count:
                raise ReleaseRefused(f"{law.name}: {slot} was not drawn, so that nothing can be promised.")
        for array in found.values():
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
        if law.at_once:
            self._found[law.name] = found
        return found

    def receipt(self, *, caveat: str | None = None) -> Receipt:
        """Return what was paid for and drawn so far."""
        return Receipt(self._receipt.asked, self.laws, caveat, not self._for_tests, self.charge)

    def promised(self, *, caveat: str | None = None) -> Guarantee:
        """Return what the laws come to once all of them are drawn, as a stream states it before its last day."""
        return promise(self._plan, self.receipt(caveat=caveat))

    def guarantee(self, *, caveat: str | None = None) -> Guarantee:
        """Return what the laws come to; refuse as long as a slot of one was never drawn."""
        for law in self.laws:
            for slot in law.slots():
                if not self._pieces(law, slot):
                    raise ReleaseRefused(f"{law.name}: {slot} was not drawn, and nothing can be promised without.")
        return self.promised(caveat=caveat)

    def drawn(self, *, caveat: str | None = None) -> Drawn:
        """Return the arrays that the laws drew as a release; refuse as long as one was not drawn."""
        guarantee = self.guarantee(caveat=caveat)
        parts = {name: Part(law, self._found[name]) for name, law in self._laws.items()}
        return Drawn((self.receipt(caveat=caveat),), parts, guarantee)

    def draw_all(self, state: Any, *, caveat: str | None = None) -> Drawn:
        """Draw every law of one sensitive state, and return the release."""
        for law in self.laws:
            self.draw(law, state)
        return self.drawn(caveat=caveat)

    def _take(self, law: Law, slot: str, piece: Hashable, member: Hashable) -> Any:
        """Return a slot's noise, marked as drawn before it is: an interrupted draw may have been seen."""
        declared = law.slots().get(slot)
        if declared is None:
            raise ReleaseRefused(f"{law.name} has no slot {slot}: what was not paid for is not drawn.")
        if isinstance(declared, Mapping):
            if member not in declared:
                raise ReleaseRefused(f"{law.name}: the family of {slot} that was paid for has no such member.")
            declared = declared[member]
        elif member is not None:
            raise ReleaseRefused(f"{law.name}: {slot} is no family.")
        with self._turn:  # two threads must not draw one piece
            pieces = self._pieces(law, slot)
            if piece in pieces or len(pieces) >= law.pieces(slot):
                raise ReleaseRefused(f"{law.name}: {slot} was drawn before. It was paid for once, and is drawn once.")
            pieces.add(piece)
            self._for_tests |= noise_is_for_tests()
        return declared

    def _pieces(self, law: Law, slot: str) -> set[Hashable]:
        return self._drawn.setdefault((law.name, slot), set())


class Handle:
    """What a law draws with: its own declared slots, each piece once. A permit makes one for each draw."""

    __slots__ = ("_law", "_permit")

    _permit: Permit
    _law: Law

    def __init__(self) -> None:
        raise ReleaseRefused("noise is drawn through a permit that was paid for.")

    @classmethod
    def _of(cls, permit: Permit, law: Law) -> Handle:
        handle = object.__new__(cls)
        handle._permit, handle._law = permit, law
        return handle

    def add(self, values: Integers, slot: str, *, piece: Hashable = None, member: Hashable = None) -> Integers:
        """Return integers with fresh noise of a slot; of a family, that of one of its members."""
        return self.adder(slot, piece=piece, member=member)(values)

    def adder(self, slot: str, *, piece: Hashable = None, member: Hashable = None) -> Callable[[Integers], Integers]:
        """Return a function that adds fresh noise of a slot to one chunk of a table after the other."""
        noise = self._permit._take(self._law, slot, piece, member)

        def add(chunk: Integers) -> Integers:
            if chunk.dtype.kind != "i":  # fractions would stay as they are
                raise ReleaseRefused(f"{self._law.name}: noise is added to integers, for which it was calibrated.")
            noisy: Integers = chunk + noise.sample(chunk.size).reshape(chunk.shape)
            return noisy

        return add

    def draw(self, slot: str, *data: Any, piece: Hashable = None) -> Any:
        """Return what a slot's own mechanism publishes of the data."""
        return self._permit._take(self._law, slot, piece, None).draw(*data)
