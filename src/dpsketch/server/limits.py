"""Limits on what a caller may ask for and send: addresses, bodies, rates that count what is asked for, and quotas."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import math
import secrets
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from starlette.types import Message, Receive, Scope

from dpsketch.server.refusals import Refused
from dpsketch.server.settings import Limits

if TYPE_CHECKING:
    from dpsketch.server.aggregates import Aggregate
    from dpsketch.server.auth import Visitor

__all__ = ["Admission", "Bodies", "Body", "Quota", "Rate", "RawHeaders", "address_of", "network_of", "too_large"]

RawHeaders = Mapping[bytes, bytes]
"""A request's headers as they came, by their names in lower case; of several with one name, the last."""


def address_of(scope: Scope, headers: RawHeaders, header: bytes | None) -> str:
    """Return the address that limits count by: an IPv4 address, or an IPv6 network of 64 bits, which one person has.

    A proxy's header is believed where the settings name it. Of a list, the last is what our own proxy added; all before
    it is the caller's word.
    """
    told = headers.get(header, b"").rpartition(b",")[2] if header is not None else b""
    client = scope.get("client")
    return network_of(told.decode("latin-1").strip() or (client[0] if client else ""))


@lru_cache(4096)
def network_of(text: str) -> str:
    """Return an IPv4 address, or the network of 64 bits of an IPv6 address."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return "?"
    if isinstance(found, ipaddress.IPv6Address):
        mapped = found.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


_DAY = 86_400
_REMEMBERED = 200_000  # callers; whoever was idle longest is forgotten first
_GROUPS, _PLACES = 1 << 15, 8  # of callers with a quota: 262,144 in 4 MB


class Rate:
    """A bucket for each caller: so much a second, and some seconds' worth at once.

    Parameters
    ----------
    per_second : float
        What a caller may take a second.
    what : str
        What is counted, in the words of a refusal.
    seconds : float
        How many seconds' worth a caller may take at once.
    least : float
        What a bucket holds at least: the largest thing that is taken at once.
    """

    def __init__(
        self,
        per_second: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        what: str = "requests",
        seconds: float = 2.0,
        least: float = 1.0,
    ) -> None:
        self._per_second = per_second
        self._most = max(least, seconds * per_second)
        self._clock = clock
        self._what = what
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # whoever took longest ago comes first

    def take(self, caller: str, amount: float = 1.0) -> None:
        """Count something, or refuse it. More than a bucket holds is taken from a full one, and owed."""
        now = self._clock()
        left = self._now(caller, now)
        wanted = min(amount, self._most)
        if left < wanted:
            self._keep(caller, left, now)
            wait = math.ceil((wanted - left) / self._per_second)
            words = f"Too many {self._what}; wait a little."
            raise Refused(429, "rate_limited", words, {"Retry-After": str(wait)})
        self._keep(caller, left - amount, now)

    def charge(self, caller: str, amount: float) -> None:
        """Count what was spent already, whatever is left."""
        now = self._clock()
        self._keep(caller, self._now(caller, now) - amount, now)

    def _now(self, caller: str, now: float) -> float:
        left, before = self._left.pop(caller, (self._most, now))
        return min(self._most, left + (now - before) * self._per_second)

    def _keep(self, caller: str, left: float, now: float) -> None:
        self._left[caller] = (left, now)
        # A bucket that is full again is as good as none. Two are looked at for each that comes, so that few are left.
        for _ in range(2):
            first = next(iter(self._left))
            held, before = self._left[first]
            if held + (now - before) * self._per_second < self._most and len(self._left) <= _REMEMBERED:
                break
            del self._left[first]
            if not self._left:
                break


class Quota:
    """How much each caller has had today, UTC. What is remembered of a caller is a digest under a secret of the day.

    Callers lie in a table of a fixed size, each in one of a few places that its digest names. Where all of them are
    taken, whoever has had least is forgotten: nobody gets rid of what they have had by asking from many addresses.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.time, groups: int = _GROUPS) -> None:
        self._most = most
        self._clock = clock
        self._groups = groups
        self._day = -1
        self._secret = b""
        self._names = array("Q", bytes(8 * groups * _PLACES))
        self._used = array("Q", bytes(8 * groups * _PLACES))

    def take(self, caller: str, amount: int) -> None:
        """Count something, or refuse it."""
        name, group = self._find(caller)
        place = self._place(name, group)
        used = 0 if place is None else self._used[place]
        if used + amount > self._most:
            words = "This address has sent as many reports to this collection as it may today, without a token."
            wait = math.ceil(_DAY - self._clock() % _DAY)
            raise Refused(429, "quota_exceeded", words, {"Retry-After": str(wait)})
        if place is None:
            place = min(group, key=self._used.__getitem__)
            self._names[place] = name
        self._used[place] = used + amount

    def give_back(self, caller: str, amount: int) -> None:
        """Count less: it was there already, or was not taken."""
        place = self._place(*self._find(caller))
        if place is not None:
            self._used[place] = max(0, self._used[place] - amount)

    def _find(self, caller: str) -> tuple[int, range]:
        """Return a caller's name of today, and the places where it may lie."""
        day = int(self._clock() // _DAY)
        if day != self._day:
            self._day, self._secret = day, secrets.token_bytes(32)
            for table in (self._names, self._used):
                table[:] = array("Q", bytes(8 * len(table)))
        digest = hashlib.blake2b(caller.encode(), digest_size=16, key=self._secret).digest()
        first = int.from_bytes(digest[8:]) % self._groups * _PLACES
        return int.from_bytes(digest[:8]) | 1, range(first, first + _PLACES)

    def _place(self, name: int, group: range) -> int | None:
        return next((place for place in group if self._names[place] == name), None)


def too_large(limit: int) -> Refused:
    """Return the refusal of a body that is too large; the connection ends, so that the rest is not read."""
    words = (
        f"The body is larger than {limit} bytes; send less at a time. "
        "Large batches of reports, with a token, come as application/octet-stream or as an Arrow stream."
    )
    return Refused(413, "too_large", words, {"Connection": "close"})


class Bodies:
    """The bodies that are being received, and the memory that all of them together may take."""

    def __init__(self, most: int, seconds: float) -> None:
        self.most = most
        self.seconds = seconds
        self.held = 0

    def receive(self, receive: Receive, limit: int, declared: str) -> Body:
        """Wrap what reads one request's body, whose length may have been declared ("" where it was not)."""
        return Body(self, receive, limit, int(declared) if declared.isdecimal() else 0)


class Body:
    """Reads one request's body: it ends within its time, within its size, and within the memory of all."""

    __slots__ = ("_bodies", "_declared", "_done", "_end", "_receive", "_size", "limit")

    def __init__(self, bodies: Bodies, receive: Receive, limit: int, declared: int) -> None:
        self._bodies = bodies
        self._receive = receive
        self.limit = limit
        self._declared = declared
        self._size = 0
        self._done = False
        self._end = asyncio.get_running_loop().time() + bodies.seconds

    async def __call__(self) -> Message:
        """Receive the next part."""
        if self._done:
            return await self._receive()
        if self._declared > self.limit:
            raise too_large(self.limit)  # before any of it is read
        try:
            async with asyncio.timeout_at(self._end):
                message = await self._receive()
        except TimeoutError:
            words = "The body did not arrive in time."
            raise Refused(408, "too_slow", words, {"Connection": "close"}) from None
        if message["type"] == "http.request":
            part = len(message.get("body", b""))
            self._size += part
            self._bodies.held += part
            self._done = not message.get("more_body", False)
            if self._size > self.limit:
                raise too_large(self.limit)
            if self._bodies.held > self._bodies.most:
                raise Refused(503, "busy", "The service is busy; try again.", {"Retry-After": "1"})
        return message

    def release(self) -> None:
        """Give the memory back, when the request is over."""
        self._bodies.held -= self._size


class Admission:
    """How much each caller may ask for and send: rates that count what is asked for, and quotas."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.read_rate = Rate(limits.read_rate)
        self.spec_rate = Rate(limits.spec_rate)
        self._token_rate = Rate(limits.collect_rate, what="reports")
        self._address_rate = Rate(limits.address_rate, what="reports", least=limits.public_batch)
        self._collection_rate = Rate(limits.collection_rate, what="reports", least=limits.public_batch)
        self._quota = Quota(limits.address_quota)

    def batch(self, visitor: Visitor) -> int:
        """Return how many reports a request may bring."""
        if visitor.mark is not None:
            return 1
        return self._limits.max_batch if visitor.known else self._limits.public_batch

    def arrival(self, visitor: Visitor) -> None:
        """Count a request with reports before its body is read: it has at least one."""
        (self._token_rate if visitor.known else self._address_rate).take(visitor.key)

    def reports(self, visitor: Visitor, aggregate: Aggregate, number: int) -> None:
        """Count what a request turned out to bring, or refuse all of it."""
        if number > 1:
            (self._token_rate if visitor.known else self._address_rate).take(visitor.key, number - 1)
        if visitor.stranger:
            self._collection_rate.take(aggregate.row.id, number)

    def reserve(self, visitor: Visitor, aggregate: Aggregate, number: int) -> None:
        """Set well-formed reports against quotas, or refuse them."""
        if visitor.stranger:
            self._quota.take(f"{aggregate.row.id} {visitor.key}", number)

    def settle(self, visitor: Visitor, aggregate: Aggregate, unused: int) -> None:
        """Give back what was reserved for reports that were there already, or were not stored."""
        if visitor.stranger and unused:
            self._quota.give_back(f"{aggregate.row.id} {visitor.key}", unused)
