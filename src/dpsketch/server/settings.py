"""What a service is told when it starts: by the command line, or by the environment."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dpsketch.errors import InvalidInput

if TYPE_CHECKING:
    from dpsketch.server.storage import Scope

__all__ = ["OPTIONS", "Limits", "Settings", "from_environment", "variable_of"]

T = TypeVar("T")


def _limit(default: T, least: float, words: str) -> T:
    """Return a limit that an option and a variable of the environment set."""
    found: T = field(default=default, metadata={"least": least, "words": words})
    return found


@dataclass(frozen=True, slots=True)
class Limits:
    """What a caller may ask for. A caller is a token, or the address of whoever has none."""

    max_body: int = _limit(8 << 20, 1024, "Largest binary batch of reports, in bytes.")
    max_json: int = _limit(256 << 10, 1024, "Largest request in JSON, in bytes.")
    max_release: int = _limit(64 << 20, 1024, "Largest upload, in bytes.")
    max_batch: int = _limit(100_000, 1, "Maximum number of reports in a request with a token.")
    public_batch: int = _limit(1, 1, "Maximum number of reports in a request without a token.")
    max_reports: int = _limit(100_000_000, 1, "Maximum number of reports in a collection.")
    collect_rate: float = _limit(1_000_000.0, 0.01, "Reports per second and token.")
    address_rate: float = _limit(10.0, 0.01, "Reports per second and address, without a token.")
    address_quota: int = _limit(100, 1, "Reports per day, address and collection, without a token.")
    collection_rate: float = _limit(1_000.0, 0.01, "Reports per second and collection, without tokens.")
    read_rate: float = _limit(200.0, 0.01, "Questions per second and caller.")
    spec_rate: float = _limit(2_000.0, 0.01, "Fetches of specs per second and caller.")
    compute_rate: float = _limit(0.5, 0.001, "Seconds of computing per second and caller.")
    timeout: float = _limit(30.0, 0.1, "Seconds for a head, a body, an answer.")
    max_connections: int = _limit(4096, 1, "Number of connections at a time.")
    max_keys: int = 10_000
    """The most keys, candidates or points in one question."""
    waiting: int = 256 << 20
    """Bytes of reports that may wait to be written before more are turned away."""

    def for_one_of(self, workers: int) -> Limits:
        """Return the limits of one of several processes, among which a proxy spreads callers: each has its part.

        So all together let through what one alone would, and never more; a quota below their number is one for each.
        """
        rates = {each.name: getattr(self, each.name) / workers for each in OPTIONS if each.name.endswith("_rate")}
        return replace(self, **rates, address_quota=max(1, self.address_quota // workers))


OPTIONS = [each for each in fields(Limits) if each.metadata]
"""The limits that can be set; the metadata of each has its least value and the words of its help."""


def variable_of(name: str) -> str:
    """Return the variable of the environment that sets what an option does."""
    return f"DPSKETCH_{name.upper()}"


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
    chosen: dict[str, Any] = {}
    for each in OPTIONS:
        if text := given.get(variable_of(each.name)):
            try:
                chosen[each.name] = int(text) if isinstance(each.default, int) else float(text)
            except ValueError:
                chosen[each.name] = math.nan
            if not each.metadata["least"] <= chosen[each.name] < math.inf:
                whole = "whole " * isinstance(each.default, int)
                raise InvalidInput(f"{variable_of(each.name)} is a {whole}number of at least {each.metadata['least']}.")
    return Limits(**chosen)


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
