"""What is asked of a source and what comes back: columns, batches, how far it has come, and where a batch is from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from dpsketch.columns import UserType
from dpsketch.errors import InvalidInput

if TYPE_CHECKING:
    from dpsketch.sources.expressions import RowExpression

__all__ = ["Batch", "Columns", "KeyType", "Place", "Progress"]

KeyType = Literal["int", "text"]


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a source are wanted, and what for.

    Attributes
    ----------
    key, user, weight : str or None
        The names of the columns. Several names as ``key`` are a compound key, which is text (:mod:`dpsketch.compound`).
    points : tuple of str
        Numeric columns: the coordinates of a point or, beside a key, the values of a record.
    key_type, user_type : {"int", "text"} or None
        How keys (users) are read. None takes what the source declares (:mod:`dpsketch.columns`): the schema of
        Parquet and Arrow, the types of a database's columns. CSV, TSV, JSON and SQLite's queries declare nothing and
        give text, a whole number as its decimal digits. All sources must have users of one type.
        ``"int"`` reads users of every type as whole numbers; ``"text"`` reads integers as their decimal digits.
        Floats and decimals stay apart from text: a CSV file may write 5.0 where a column of floats holds 5.
    count : str or None
        The column that says how many equal records a row stands for.
    where : RowExpression or None
        The condition under which a row is read.
    computed : tuple of RowExpression
        Columns that are computed, each under its name, which stand before those of the source.
    elsewhere : frozenset of str
        Columns that are not in the file: the names of its folders give them.
    encoded : bool
        Whether a text key may come as Arrow's dictionary, where a source stores it so. Records of users, conditions and
        compound keys look at every value, and get text all the same.
    named : bool
        Whether a release names the keys, which are whole numbers below 2⁶³ or text; larger numbers are refused.
    """

    key: str | tuple[str, ...] | None = None
    user: str | None = None
    weight: str | None = None
    points: tuple[str, ...] = ()
    key_type: KeyType | None = None
    user_type: KeyType | None = None
    count: str | None = None
    where: RowExpression | None = None
    computed: tuple[RowExpression, ...] = ()
    elsewhere: frozenset[str] = frozenset()
    encoded: bool = False
    named: bool = False

    def __post_init__(self) -> None:
        if not (self.names or self.elsewhere):
            raise InvalidInput("name at least one column to read: key=, user=, weight= or points=.")
        for name, value in (("key_type", self.key_type), ("user_type", self.user_type)):
            if value not in ("int", "text", None):
                raise InvalidInput(f"{name} is 'int', 'text' or None, not {value!r}.")
        if isinstance(self.key, tuple) and (len(self.key) < 2 or len(set(self.key)) < len(self.key)):
            raise InvalidInput("a compound key has two or more different columns. Name each once.")
        if isinstance(self.key, tuple) and self.key_type == "int":
            raise InvalidInput("a key of several columns is text: drop the key type.")

    @property
    def names(self) -> tuple[str, ...]:
        """The distinct names wanted of a file, in a fixed order."""
        own = {each.name for each in self.computed}
        wanted = [name for name in self.kept if name not in own]
        for each in (*self.computed, *([] if self.where is None else [self.where])):
            wanted += each.columns
        return tuple(dict.fromkeys(name for name in wanted if name not in self.elsewhere))

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of the columns that a batch is made of, computed or not."""
        wanted = (*self.parts, self.user, self.weight, self.count, *self.points)
        return tuple(dict.fromkeys(name for name in wanted if name is not None))

    @property
    def identities(self) -> frozenset[str]:
        """The names wanted as keys or users."""
        return frozenset(self.parts) | frozenset(() if self.user is None else (self.user,))

    @property
    def asks_sql(self) -> bool:
        """Whether a row is looked at before it is read."""
        return self.where is not None or bool(self.computed)

    @property
    def encodable(self) -> str | None:
        """The column that may come as a dictionary, None if none may."""
        alone = self.encoded and self.user is None and self.key_type != "int" and not self.asks_sql
        return self.key if alone and isinstance(self.key, str) and self.key not in self.elsewhere else None

    def only_compares(self, name: str) -> bool:
        """Say whether a name stands in the condition alone."""
        return self.where is not None and name in self.where.columns and name not in self.kept

    @property
    def parts(self) -> tuple[str, ...]:
        """The columns of the key: none, one, or those of a compound key."""
        return self.key if isinstance(self.key, tuple) else () if self.key is None else (self.key,)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Batch:
    """Records, column by column. Sensitive: its printed form shows its shape only.

    Attributes
    ----------
    key : pyarrow.Array or None
        ``int64``, ``string``, or ``binary`` where the source declares bytes; a missing key is null. It is ``null``
        while no source has shown a key that is not. Where ``Columns(encoded=True)`` allows it, a dictionary of text.
    user : pyarrow.Array or None
        As keys are, never null.
    weight : pyarrow.Array or None
        ``float64``, never null.
    points : tuple of pyarrow.Array
        One ``float64`` array for each coordinate, never null.
    rows : int
        The length of every array. It is 0 in a last batch that only reports ``skipped``.
    skipped : int
        Records left out since the batch before: without a user, a weight or a count, or with a missing coordinate.
    count : pyarrow.Array or None
        ``int64``, never null nor negative: so many equal records each row stands for.
    user_type : UserType or None
        The type that the source declares for its users. None if ``user`` itself has that type, or has none yet.
    key_types : tuple of UserType
        The types that the source declares for the columns of the key; empty if one of them has none yet.
    """

    key: pa.Array | None
    user: pa.Array | None
    weight: pa.Array | None
    points: tuple[pa.Array, ...]
    rows: int
    skipped: int = 0
    count: pa.Array | None = None
    user_type: UserType | None = None
    key_types: tuple[UserType, ...] = ()

    def __repr__(self) -> str:
        held = [name for name in ("key", "user", "weight", "count") if getattr(self, name) is not None]
        held += [f"{len(self.points)} coordinates"] if self.points else []
        return f"<Batch of {', '.join(held)}; sensitive, content not shown>"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far reading or decoding has come: ``done`` of ``total`` (None where nobody knows) in ``unit``."""

    done: int
    total: int | None
    unit: Literal["bytes", "rows", "sweeps", "levels"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a batch comes from.

    Attributes
    ----------
    name : str
        What messages call it.
    text : bool
        Whether its format declares no types: all its columns are text, and its reader has checked that it is UTF-8.
    parquet : bool
        Whether Arrow's reader of Parquet made the arrays, so that only the encoding of their text is left to check.
    """

    name: str
    text: bool
    parquet: bool = False

    def __str__(self) -> str:
        return self.name
