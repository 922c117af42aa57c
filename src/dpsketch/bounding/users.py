"""Read a column of users: by exact value, with the type that the column has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dpsketch.canonical import UserType, user_type_of
from dpsketch.columns import as_column, has_schema
from dpsketch.errors import InvalidInput
from dpsketch.hashing import TEXT_FINGERPRINTS, to_arrow

__all__ = ["UserColumn", "read_users"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UserColumn:
    """Users in their canonical form, with the type of the column they came in. Sensitive.

    Attributes
    ----------
    column : pyarrow.ChunkedArray
        Whole numbers as 64-bit patterns, or text. Within one user type, unequal users have unequal values.
    user_type : UserType or None
        The type that the column had; None if it holds nulls alone.
    """

    column: pa.ChunkedArray
    user_type: UserType | None

    def __repr__(self) -> str:
        return "<UserColumn; sensitive, content not shown>"


def read_users(users: Any, n: int | None = None) -> UserColumn:
    """Read any accepted container of users, ``n`` of them if that is stated; all kinds and streams read users here."""
    if isinstance(users, UserColumn):
        read = users
    else:
        try:
            read = _read(users)
        except InvalidInput as refusal:
            wrong = str(refusal)
        else:
            wrong = ""
        if wrong:
            raise InvalidInput(f"users are read as keys are, and these were refused: {wrong}")
    if n is not None and len(read.column) != n:
        raise InvalidInput("users must have one entry a key; this column has another length.")
    return read


def _read(users: Any) -> UserColumn:
    given, declared = as_column(users), has_schema(users)
    if given.type == TEXT_FINGERPRINTS:
        raise InvalidInput("users are told apart exactly, and these are fingerprints. Give the users themselves.")
    column = to_arrow(given, None if declared else "text")
    if pa.types.is_uint64(column.type) and not declared and any(user is not None and user < 0 for user in users):
        raise InvalidInput(
            "the users hold negative integers and integers of 2**63 and more, and no 64-bit column holds both. "
            "Pass them as text."
        )
    return UserColumn(column, user_type_of(given.type, declared=declared))
