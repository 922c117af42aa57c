"""What a service is told when it starts: by the command line, or by the environment."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dpsketch.errors import InvalidInput
from dpsketch.server.auth import Scope

__all__ = ["VARIABLES", "Limits", "Settings", "from_environment"]

_RATES = ("collect_rate", "address_rate", "collection_rate", "read_rate", "spec_rate", "compute_rate", "timeout")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a caller may ask for. A caller is a token, or the address of whoever has none.

    Attributes
    ----------
    body, json_body, release_body : int
        The largest request body in bytes: of reports in a binary form, of JSON, and of an uploaded release.
    batch, public_batch : int
        The most reports in one request, with a token and without one.
    keys : int
        The most keys, candidates or points in one question.
    collect_rate : float
        Reports a second that one token may send.
    address_rate, address_quota : float, int
        Reports a second that one address may send without a token, and how many a day to one collection.
    collection_rate : float
        Reports a second that one collection takes from all who have no token.
    reports : int
        The most reports that one collection holds.
    read_rate, spec_rate : float
        Questions a second that one caller may ask, and how often one may fetch a collection's spec.
    compute_rate : float
        Seconds of computing that one caller may cause a second.
    timeout : float
        Seconds in which a request's head must arrive, then its body, and in which an answer must be ready.
    waiting : int
        Bytes of reports that may wait to be written before more are turned away.
    connections : int
        Connections at a time.
    """

    body: int = 8 << 20
    json_body: int = 256 << 10
    release_body: int = 64 << 20
    batch: int = 100_000
    public_batch: int = 1
    keys: int = 10_000
    collect_rate: float = 1_000_000
    address_rate: float = 10
    address_quota: int = 100
    collection_rate: float = 1_000
    reports: int = 100_000_000
    read_rate: float = 200
    spec_rate: float = 2_000
    compute_rate: float = 0.5
    timeout: float = 30
    waiting: int = 256 << 20
    connections: int = 4096

    def for_one_of(self, workers: int) -> Limits:
        """Return the limits of one of several processes, among which a proxy spreads callers: each has its part.

        So all together let through what one alone would, and never more; a quota below their number is one for each.
        """
        rates = {name: getattr(self, name) / workers for name in _RATES if name != "timeout"}
        return replace(self, **rates, address_quota=max(1, self.address_quota // workers))


@dataclass(frozen=True, slots=True)
class Settings:
    """Where a service keeps what it is given, and whom it answers.

    Attributes
    ----------
    store : str
        ``sqlite:///path``, a path, or ``postgresql://user@host/database``.
    mounts : tuple of Path
        Folders whose ``.dps`` files are served as they are.
    ledger : str or None
        The ledger whose budgets are shown.
    public : frozenset of {"collect", "read"}
        What callers without a token may do.
    origins : tuple of str
        Web origins whose pages may call the service from a browser.
    hosts : tuple of str
        The names to which the service answers, without a port; none stands for all.
    client_header : str or None
        The header in which a proxy tells the address of a caller.
    shared : bool
        Whether other processes serve the same store (PostgreSQL only).
    workers : int
        How many processes serve it; rates and quotas are divided by it.
    telemetry : bool
        Whether requests are noted as OpenTelemetry spans.
    limits : Limits
        What a caller may ask for.
    """

    store: str
    mounts: tuple[Path, ...] = ()
    ledger: str | None = None
    public: frozenset[Scope] = frozenset()
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    client_header: str | None = None
    shared: bool = False
    workers: int = 1
    telemetry: bool = False
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.workers > 1 and not self.shared:
            raise InvalidInput("several workers share their store: say so with --shared (DPSKETCH_SHARED=1).")


VARIABLES: dict[str, str] = {
    "DPSKETCH_MAX_BODY": "body",
    "DPSKETCH_MAX_JSON": "json_body",
    "DPSKETCH_MAX_RELEASE": "release_body",
    "DPSKETCH_MAX_BATCH": "batch",
    "DPSKETCH_PUBLIC_BATCH": "public_batch",
    "DPSKETCH_COLLECT_RATE": "collect_rate",
    "DPSKETCH_ADDRESS_RATE": "address_rate",
    "DPSKETCH_ADDRESS_QUOTA": "address_quota",
    "DPSKETCH_COLLECTION_RATE": "collection_rate",
    "DPSKETCH_MAX_REPORTS": "reports",
    "DPSKETCH_READ_RATE": "read_rate",
    "DPSKETCH_SPEC_RATE": "spec_rate",
    "DPSKETCH_COMPUTE_RATE": "compute_rate",
    "DPSKETCH_TIMEOUT": "timeout",
    "DPSKETCH_MAX_CONNECTIONS": "connections",
}
"""Which variable of the environment sets which limit; the command line's options read the same."""


def from_environment(environment: Mapping[str, str] | None = None) -> Settings:
    """Read settings from variables named ``DPSKETCH_…``, as the options of ``dpsketch serve`` do.

    Lists have spaces between their parts; folders have what separates those of PATH.
    """
    given = os.environ if environment is None else environment
    store = given.get("DPSKETCH_STORE")
    if not store:
        raise InvalidInput("DPSKETCH_STORE is not set: name a SQLite file, or postgresql://user@host/database.")
    scopes: tuple[Scope, ...] = ("read", "collect")
    public = frozenset(scope for scope in scopes if _switch(given, f"DPSKETCH_PUBLIC_{scope.upper()}"))
    return Settings(
        store=store,
        mounts=tuple(Path(part) for part in given.get("DPSKETCH_MOUNT", "").split(os.pathsep) if part),
        ledger=given.get("DPSKETCH_LEDGER") or None,
        public=public,
        origins=_listed(given, "DPSKETCH_ALLOW_ORIGIN"),
        hosts=_listed(given, "DPSKETCH_ALLOW_HOST"),
        client_header=given.get("DPSKETCH_CLIENT_HEADER") or None,
        shared=_switch(given, "DPSKETCH_SHARED"),
        workers=_whole(given, "DPSKETCH_WORKERS", 1),
        telemetry=_switch(given, "DPSKETCH_TELEMETRY"),
        limits=_limits(given),
    )


def _limits(given: Mapping[str, str]) -> Limits:
    limits = Limits()
    chosen: dict[str, Any] = {}
    for variable, name in VARIABLES.items():
        text = given.get(variable)
        if text:
            whole = isinstance(getattr(limits, name), int) and name not in _RATES
            try:
                value = int(text) if whole else float(text)
            except ValueError:
                value = 0
            if not 0 < value < math.inf:
                raise InvalidInput(f"{variable} is a {'whole ' * whole}number above 0.")
            chosen[name] = value
    return replace(Limits(), **chosen)


def _whole(given: Mapping[str, str], variable: str, default: int) -> int:
    text = given.get(variable) or str(default)
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 10_000):
        raise InvalidInput(f"{variable} is a whole number above 0.")
    return int(text)


def _listed(given: Mapping[str, str], variable: str) -> tuple[str, ...]:
    return tuple(given.get(variable, "").split())


def _switch(given: Mapping[str, str], variable: str) -> bool:
    text = given.get(variable, "").lower()
    if text not in ("", "0", "no", "false", "1", "yes", "true"):
        raise InvalidInput(f"{variable} is 1 or 0.")
    return text in ("1", "yes", "true")
