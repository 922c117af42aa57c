"""What a service is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from dpsketch.server.auth import Scope

__all__ = ["Limits", "Settings"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a caller may ask for.

    Attributes
    ----------
    body, release_body : int
        The largest request body in bytes, and that of an uploaded release.
    batch : int
        The most reports in one request.
    keys : int
        The most keys, candidates or points in one question.
    collect_rate, read_rate : float
        Requests a second that one token may make; callers without a token share one allowance.
    timeout : float
        Seconds in which a request's head must arrive, then its body, and in which an answer must be ready.
    waiting : int
        Bytes of reports that may wait to be written before more are turned away.
    connections : int
        Connections at a time.
    """

    body: int = 8 << 20
    release_body: int = 64 << 20
    batch: int = 100_000
    keys: int = 10_000
    collect_rate: float = 20_000
    read_rate: float = 200
    timeout: float = 30
    waiting: int = 256 << 20
    connections: int = 4096


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
    limits : Limits
        What a caller may ask for.
    """

    store: str
    mounts: tuple[Path, ...] = ()
    ledger: str | None = None
    public: frozenset[Scope] = frozenset()
    origins: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
