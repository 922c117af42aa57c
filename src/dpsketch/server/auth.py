"""Who may do what: tokens with scopes. A token is shown once and kept as its SHA-256."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from dpsketch.errors import InvalidInput
from dpsketch.server.refusals import Refused

if TYPE_CHECKING:
    from dpsketch.server.storage import Storage

__all__ = ["SCOPES", "Caller", "Scope", "Token", "Tokens", "check_scope", "digest_of", "new_token", "require"]

Scope = Literal["collect", "read", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

_PREFIX = "dps_"


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is listed: all but the secret."""

    id: str
    name: str
    scope: Scope


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever makes a request: the token's id ("" without one) and what it may do."""

    id: str
    scopes: frozenset[Scope]


def new_token() -> str:
    """Return a fresh token: 256 random bits."""
    return _PREFIX + secrets.token_urlsafe(32)


def digest_of(token: str) -> str:
    """Return what is kept of a token; 256 random bits need no slow hash."""
    return hashlib.sha256(token.encode()).hexdigest()


def check_scope(scope: str) -> Scope:
    """Return a scope, or refuse what is none."""
    for known in SCOPES:
        if scope == known:
            return known
    raise InvalidInput(f"a scope is one of {', '.join(SCOPES)}.")


class Tokens:
    """The store's tokens, held in memory and read again from time to time."""

    refresh_seconds = 1.0
    """After so long a new or revoked token takes effect."""

    def __init__(self, storage: Storage, public: frozenset[Scope]) -> None:
        self._storage = storage
        self._public = Caller("", public)
        self._known: dict[str, Caller] = {}

    def __len__(self) -> int:
        return len(self._known)

    def caller(self, authorization: str | None) -> Caller:
        """Return who sends this ``Authorization`` header; None stands for no header."""
        if authorization is None:
            return self._public
        scheme, _, token = authorization.partition(" ")
        caller = self._known.get(digest_of(token.strip())) if scheme.lower() == "bearer" else None
        if caller is None:
            raise Refused(
                401,
                "unauthorized",
                "The token is not known, or was revoked. Ask whoever runs the service for one.",
                {"WWW-Authenticate": "Bearer"},
            )
        return caller

    def refresh(self) -> None:
        """Read the tokens again."""
        known = {}
        for digest, token in self._storage.tokens().items():
            implied = frozenset(SCOPES) if token.scope == "admin" else frozenset({token.scope})
            known[digest] = Caller(token.id, implied | self._public.scopes)
        self._known = known


def require(caller: Caller, *scopes: Scope) -> None:
    """Refuse a caller who has none of the scopes."""
    if caller.scopes.isdisjoint(scopes):
        if not caller.id:
            raise Refused(
                401, "unauthorized", "This needs a token (Authorization: Bearer …).", {"WWW-Authenticate": "Bearer"}
            )
        raise Refused(403, "forbidden", f"This needs a token with the scope {' or '.join(scopes)}.")
