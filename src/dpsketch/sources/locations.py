"""From the strings a caller gives to the files, pipes and tables they mean, each checked before anything is read.

A folder stands for all files below it; folders named ``column=value`` in it, as Hive writes them, are columns of text.
A zip archive stands for the text files in it. ``s3://`` and ``gs://`` name files and folders of object stores, with the
credentials that their own tools use.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, assert_never, get_args
from urllib.parse import parse_qsl, unquote_plus, urlencode

from dpsketch.errors import InvalidInput, SourceError
from dpsketch.sources.failures import guarded, unreadable
from dpsketch.sources.folders import Constants, files_below, hive_columns, is_hidden
from dpsketch.sources.stores import OBJECT_STORES, ObjectStore

Format = Literal["csv", "tsv", "jsonl", "parquet", "arrow"]
Compression = Literal["gzip", "bz2", "zstd"]

FORMAT_NAMES: dict[Format, str] = {
    "csv": "CSV",
    "tsv": "TSV",
    "jsonl": "JSON lines",
    "parquet": "Parquet",
    "arrow": "Arrow",
}
_SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".arrows": "arrow",
}
_COMPRESSIONS: dict[str, Compression] = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
# Not read: endings, with the program that unpacks each.
_OTHER_COMPRESSIONS = {".xz": "xz", ".lz4": "lz4"}
_SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")
# Letters alone could begin a header row: such a mark counts only with the control byte that follows it.
_MAGIC: tuple[tuple[str, re.Pattern[bytes]], ...] = (
    ("Parquet", re.compile(rb"PAR1[^\t\n\r -\xff]")),
    ("encrypted Parquet", re.compile(rb"PARE[^\t\n\r -\xff]")),
    ("Arrow", re.compile(rb"ARROW1\x00\x00|\xff\xff\xff\xff")),
    ("the first version of Feather", re.compile(rb"FEA1\x00")),
    ("an SQLite database", re.compile(rb"SQLite format 3\x00")),
    ("gzip", re.compile(rb"\x1f\x8b")),
    ("bz2", re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")),
    ("xz", re.compile(rb"\xfd7zXZ\x00")),
    ("zstd", re.compile(rb"\x28\xb5\x2f\xfd")),
    ("a zip archive or a spreadsheet", re.compile(rb"PK\x03\x04")),
    ("UTF-16 text", re.compile(rb"\xff\xfe|\xfe\xff")),
)
HEAD_BYTES = 16


@dataclass(frozen=True, slots=True)
class File:
    """A regular file, its format and compression known by its name and confirmed by its first bytes.

    Attributes
    ----------
    path : Path
        Where it lies; in an object store, the bucket and what is below it.
    format, compression : str
        What it holds.
    size : int
        In bytes.
    row_groups : tuple of int, or None
        Those that are read of a Parquet file, the first and the one after the last; None means all.
    constants : tuple of pairs
        Columns that the names of its folders give, with this file's value; None is a missing one.
    store : Store or None
        The object store that it lies in.
    member : str or None
        Its name in the zip archive at ``path``.
    """

    path: Path
    format: Format
    compression: Compression | None
    size: int
    row_groups: tuple[int, int] | None = None
    constants: tuple[tuple[str, str | None], ...] = ()
    store: ObjectStore | None = None
    member: str | None = None

    def __str__(self) -> str:
        place = str(self.path) if self.store is None else self.store.address(self.path)
        return f"{place if self.member is None else f'{place}/{self.member}'!r} ({FORMAT_NAMES[self.format]})"

    def opened(self) -> Any:
        """Open its bytes, unpacked if it is in an archive, for reading from the beginning."""
        if self.member is None:
            return self.path.open("rb", buffering=0) if self.store is None else self.store.opened(self.path)
        with zipfile.ZipFile(self.path if self.store is None else self.store.opened(self.path)) as archive:
            return archive.open(self.member)  # which keeps the archive open

    def seekable(self) -> Any:
        """Return what Arrow reads it from, here and there."""
        return self.path if self.store is None else self.store.opened(self.path)


@dataclass(frozen=True, slots=True)
class StandardInput:
    """Whatever is piped in, said to be of ``format``."""

    format: Format

    def __str__(self) -> str:
        return f"standard input ({FORMAT_NAMES[self.format]})"


@dataclass(frozen=True, slots=True)
class Database:
    """A table or a query of a database. ``url`` may hold a password, so that it is never printed."""

    system: Literal["sqlite", "postgresql"]
    url: str = field(repr=False)
    table: str | None
    query: str | None = field(repr=False)

    def __str__(self) -> str:
        system = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}[self.system]
        return f"the query of the {system} database" if self.table is None else f"{system} table {self.table!r}"


Location = File | StandardInput | Database


def locate(sources: Sequence[str], stdin_format: Format) -> list[Location]:
    """Return what each source means, in order; a glob gives its files by name."""
    if isinstance(sources, str):
        raise InvalidInput("sources is a list of names; put the one name into a list.")
    if stdin_format not in get_args(Format):
        raise InvalidInput(f"stdin_format is one of {', '.join(get_args(Format))}, not {stdin_format!r}.")
    found = [location for source in sources for location in _locate(source, stdin_format)]
    if not found:
        raise InvalidInput("there is nothing to read: name at least one source.")
    _refuse_twice(found)
    return found


def _locate(source: str, stdin_format: Format) -> Iterator[Location]:
    if source == "-":
        yield StandardInput(stdin_format)
        return
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", source)
    if scheme is not None and scheme.group(1).lower() in OBJECT_STORES:
        store, base, found = ObjectStore.listed(source)
        for path in found:
            yield from _files(path, store, hive_columns(path, base))
        return
    if scheme is not None:
        yield _database(source, scheme.group(1).lower())
        return
    path = Path(source)
    if _is_folder(path):
        for each in files_below(path):
            yield from _files(each, None, hive_columns(each, path))
        return
    if not re.search(r"[*?\[]", source) or path.exists():
        yield from _files(path, None)
        return
    hidden = path.name.startswith(".")
    matches = [match for match in sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor)))) if match.is_file()]
    matches = [match for match in matches if hidden or not match.name.startswith(".")]
    if not matches:
        raise SourceError(f"no file matches {source!r}. Check the pattern and the directory.")
    for match in matches:
        yield from _files(match, None)


def _is_folder(path: Path) -> bool:
    """Say whether a path is a folder; not where this user may not look, which reading then says."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _refuse_twice(found: Sequence[Location]) -> None:
    """Refuse a source that is named twice: its records would count twice, past the bound of the unit."""
    seen = set()
    for location in found:
        identity: object = location
        if isinstance(location, File) and location.store is None:
            status = location.path.stat()
            identity = (status.st_dev, status.st_ino, location.member)
        elif isinstance(location, File):
            identity = (str(location.path), location.member)
        if identity in seen:
            raise SourceError(f"{location} is given twice, and each record would count twice. Name it once.")
        seen.add(identity)


def _files(path: Path, store: ObjectStore | None, constants: Constants = ()) -> Iterator[File]:
    """Return the file at a path, or those in it if it is a zip archive."""
    if path.suffix.lower() != ".zip":
        yield replace(_file(path, store), constants=constants)
        return
    place = repr(str(path) if store is None else store.address(path))

    def members() -> list[zipfile.ZipInfo]:
        with zipfile.ZipFile(path if store is None else store.opened(path)) as archive:
            return [each for each in archive.infolist() if not (each.is_dir() or is_hidden(Path(each.filename)))]

    for member in guarded(members, lambda error: unreadable(place, error)):
        inside = Path(member.filename)
        kind, compression = _named(inside, repr(f"{path.name}/{member.filename}"), b"")
        if compression or kind in ("parquet", "arrow") or member.flag_bits & 1:
            raise SourceError(
                f"{place} holds a file that is packed twice, encrypted, or not text. Unpack the archive, and name "
                "its files."
            )
        yield File(path, kind, None, member.file_size, constants=constants, store=store, member=member.filename)


def _file(path: Path, store: ObjectStore | None) -> File:
    place = repr(str(path) if store is None else store.address(path))

    def first_bytes() -> tuple[int, bytes]:
        if store is not None:
            with store.opened(path) as stream:
                return stream.size(), stream.read(HEAD_BYTES)
        if not path.exists():
            raise FileNotFoundError
        if not path.is_file():
            raise SourceError(f"{place} is not a regular file. Pipe it in, and name the source '-'.")
        with path.open("rb") as stream:
            return path.stat().st_size, stream.read(HEAD_BYTES)

    size, head = guarded(first_bytes, lambda error: unreadable(place, error))
    kind, compression = _named(path, place, head)
    if compression and kind in ("parquet", "arrow"):
        raise SourceError(f"{place} is compressed as a whole, which {FORMAT_NAMES[kind]} is never. Unpack it first.")
    # JSON lines have no header: without a line they hold no record, and nothing is missing.
    if not size and (kind != "jsonl" or compression):
        raise SourceError(f"{place} is empty: not even its columns are named. Check how it was written.")
    file = File(path, kind, compression, size, store=store)
    check_magic(head, file, compression or kind)
    return file


def _named(path: Path, place: str, head: bytes) -> tuple[Format, Compression | None]:
    """Return what a file holds by its name."""
    compression = _COMPRESSIONS.get(path.suffix.lower())
    suffix = (Path(path.stem).suffix if compression else path.suffix).lower()
    if suffix in _SPREADSHEETS:
        raise SourceError(
            f"{place} is a spreadsheet, whose cells have no declared types. Save the sheet as CSV in UTF-8; or in "
            "Python: update(pandas.read_excel(…), key=…)."
        )
    if suffix in _OTHER_COMPRESSIONS:
        program = _OTHER_COMPRESSIONS[suffix]
        raise SourceError(
            f"{place} is compressed in a way that is not read; {', '.join(_COMPRESSIONS)} and .zip are. Compress it "
            f"anew, as with {program} -dc FILE | gzip > FILE.gz, or pipe it in, named -, from {program} -dc FILE."
        )
    if suffix not in _SUFFIXES:
        holds = magic(head)
        raise SourceError(
            f"{place} has a name that says nothing about its format{f' (it looks like {holds})' if holds else ''}. "
            f"Known endings are {', '.join(_SUFFIXES)}, for text also followed by {', '.join(_COMPRESSIONS)}, and .zip."
        )
    return _SUFFIXES[suffix], compression


def magic(head: bytes) -> str | None:
    """Return what the first bytes of a file show it to be, or None for text and what is unknown."""
    return next((name for name, mark in _MAGIC if mark.match(head)), None)


def check_magic(head: bytes, location: File | StandardInput, kind: Format | Compression) -> None:
    """Refuse bytes that are not what the name, or the caller, says."""
    holds = magic(head)
    wanted = {"parquet": "Parquet", "arrow": "Arrow", "csv": None, "tsv": None, "jsonl": None}.get(kind, kind)
    if holds == wanted:
        return
    looks = f"it looks like {holds or 'text, or is damaged'}"
    match location:
        case File():
            named = "what its name says" if wanted is None or kind in get_args(Format) else kind
            raise SourceError(f"{location} is not {named}: {looks}. Rename it to what it is, or convert it.")
        case StandardInput():
            raise SourceError(f"{location} is not of that format: {looks}. Say stdin_format=, or unpack it first.")
        case _:
            assert_never(location)


def _database(source: str, scheme: str) -> Database:
    base, _, parameters = source.partition("?")
    options, marker, query = parameters, "", ""
    start = re.search(r"(?:^|&)query=", parameters)
    if start is not None:
        options, marker, query = parameters[: start.start()], start.group(), parameters[start.end() :]
    pairs = parse_qsl(options, keep_blank_values=True)
    tables = [value for name, value in pairs if name == "table"]
    rest = urlencode([(name, value) for name, value in pairs if name != "table"])
    system = scheme.partition("+")[0]
    if system not in ("sqlite", "postgresql", "postgres"):
        raise SourceError(
            f"{scheme}:// is not a source that can be read. "
            "Name a file, a folder, '-', s3://bucket/… or gs://bucket/…, or a database as "
            "sqlite:///path.db?table=NAME or postgresql://…?table=NAME."
        )
    if bool(marker) == bool(tables) or len(tables) > 1 or "" in tables or (marker and not query.strip()):
        raise SourceError(
            f"a {scheme}:// source needs either one table or one query: end it with ?table=NAME, or with ?query=SQL."
        )
    if marker and not re.search(r"\s", query):
        query = unquote_plus(query)
    address = base.partition("://")[2] + (f"?{rest}" if rest else "")
    return Database(
        "sqlite" if system == "sqlite" else "postgresql",
        address,
        tables[0] if tables else None,
        query if marker else None,
    )
