"""A database's failures in a sentence: what happened and what to do, without statements, values or passwords."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from dpsketch.server.refusals import StorageFailed

__all__ = ["guarded", "sentence_of", "storage_failed"]

P = ParamSpec("P")
T = TypeVar("T")

# What the drivers say, in lower case, and what it means. The first that is found is told.
_KNOWN: tuple[tuple[str, str], ...] = (
    ("connection refused", "the database server does not answer at this address and port: is it running?"),
    ("could not translate host name", "the name of the database server is not known: is it spelt right?"),
    ("failed to resolve host", "the name of the database server is not known: is it spelt right?"),
    ("name or service not known", "the name of the database server is not known: is it spelt right?"),
    ("no such file or directory", "the database server does not answer at this socket: is it running?"),
    ("password authentication failed", "the database server refused the user or the password."),
    ("no password supplied", "the database server asks for a password; put it into ~/.pgpass or into the address."),
    ("no pg_hba.conf entry", "the database server does not let this user in from this machine (pg_hba.conf)."),
    ("permission denied", "the user may not do this in the database: let it own the service's tables."),
    ("role", "the database server does not know the user."),
    (
        "too many clients",
        "the database server has too many connections; raise its limit, or start fewer workers.",
    ),
    ("remaining connection slots", "the database server has too many connections; raise max_connections."),
    ("the database system is starting up", "the database server is starting; try again in a moment."),
    ("the database system is shutting down", "the database server is shutting down."),
    ("terminating connection", "the database server ended the connection."),
    ("server closed the connection", "the database server ended the connection."),
    ("connection timeout", "the database server did not answer in time."),
    ("timeout expired", "the database server did not answer in time."),
    ("no space left", "the database server's disk is full."),
    ("could not extend file", "the database server's disk is full."),
    ("read-only transaction", "the database is a read-only copy; name the one that takes writes."),
    ("disk is full", "the disk is full."),
    ("disk i/o error", "the disk did not take it (is it full, or gone?)."),
    ("readonly database", "the store's file may not be written by this user."),
    ("unable to open database", "the store's file cannot be opened by this user."),
    ("database is locked", "another process keeps the store's file locked."),
    ("malformed", "the store's file is damaged: restore a backup."),
    ("not a database", "the store's file is no SQLite database."),
    ("does not exist", "the database, or a table in it, does not exist: create the database first."),
)


def sentence_of(error: Exception) -> str:
    """Say what a database's error means; what is not known is told by the error's name alone."""
    cause = getattr(error, "orig", None) or error
    said = str(cause).lower()
    for sign, words in _KNOWN:
        if sign in said:
            return words
    return f"the database failed ({type(cause).__name__})."


def guarded(method: Callable[P, T]) -> Callable[P, T]:
    """Turn the database's errors into one that quotes neither statements nor values."""

    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except SQLAlchemyError as error:
            failure = storage_failed(error)
        raise failure

    return run


def storage_failed(error: Exception) -> StorageFailed:
    """Return what callers are told of a database's error."""
    return StorageFailed(f"the store could not be used: {sentence_of(error)} Nothing was stored; try again.")
