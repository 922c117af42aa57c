"""Who may do what: tokens with scopes. A token is shown once and kept as its SHA-256."""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
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
    collection: str | None = None
    expires: float | None = None

    def to_json(self) -> dict[str, str | None]:
        """Return it as a list shows it."""
        ends = None if self.expires is None else datetime.fromtimestamp(self.expires, UTC).isoformat(timespec="seconds")
        return {
            "id": self.id,
            "name": self.name,
            "scope": self.scope,
            "collection": self.collection,
            "expires": ends,
        }


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever makes a request: the token's id ("" without one), what it may do, where, and until when."""

    id: str
    scopes: frozenset[Scope]
    everywhere: frozenset[Scope] = frozenset()
    collection: str | None = None
    expires: float = math.inf

    def may(self, collection: str | None) -> frozenset[Scope]:
        """Return what it may do about a collection; None stands for all that is not one."""
        here = self.collection is None or self.collection == collection
        return self.scopes if here else self.everywhere

    def concerns(self, collection: str) -> bool:
        """Say whether it may do anything about a collection."""
        return bool(self.may(collection))


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
        if caller is None or caller.expires <= time.time():
            raise Refused(
                401,
                "unauthorized",
                "The token is not known, or was revoked, or has expired. Ask whoever runs the service for one.",
                {"WWW-Authenticate": "Bearer"},
            )
        return caller

    def refresh(self) -> None:
        """Read the tokens again."""
        known = {}
        for digest, token in self._storage.tokens().items():
            implied = frozenset(SCOPES) if token.scope == "admin" else frozenset({token.scope})
            public = self._public.scopes
            ends = math.inf if token.expires is None else token.expires
            known[digest] = Caller(token.id, implied | public, public, token.collection, ends)
        self._known = known


def require(caller: Caller, *scopes: Scope, collection: str | None = None) -> None:
    """Refuse a caller who has none of the scopes, for a collection or for what is none."""
    allowed = caller.may(collection)
    if allowed.isdisjoint(scopes):
        if not caller.id:
            raise Refused(
                401, "unauthorized", "This needs a token (Authorization: Bearer …).", {"WWW-Authenticate": "Bearer"}
            )
        if not caller.scopes.isdisjoint(scopes):
            raise Refused(403, "forbidden", "This token is for another collection.")
        raise Refused(403, "forbidden", f"This needs a token with the scope {' or '.join(scopes)}.")
