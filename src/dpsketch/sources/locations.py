"""From the strings a caller gives to the files, pipes and tables they mean, each checked before anything is read.

A folder stands for all files below it; folders named ``column=value`` in it, as Hive writes them, are columns of text.
A zip archive stands for the text files in it. ``s3://`` and ``gs://`` name files and folders of object stores, read
through Arrow's file systems with the credentials that the stores' own tools use.
"""

from __future__ import annotations

import io
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl, unquote, unquote_plus, urlencode

from dpsketch.errors import InvalidInput, SourceError
from dpsketch.sources.failures import guarded, unreadable

__all__ = [
    "HEAD_BYTES", "TEXT_FORMATS", "Database", "File", "Format", "Location", "StandardInput", "check_magic",
    "locate", "magic",
]  # fmt: skip

Format = Literal["csv", "tsv", "jsonl", "parquet", "arrow"]
TEXT_FORMATS: tuple[Format, ...] = ("csv", "tsv", "jsonl")
"""Formats that declare no types: a key is text, and a file may be compressed or in a .zip."""
Compression = Literal["gzip", "bz2", "zstd"]
Constants = tuple[tuple[str, str | None], ...]

_NAMES: dict[Format, str] = {
    "csv": "CSV", "tsv": "TSV", "jsonl": "JSON lines", "parquet": "Parquet", "arrow": "Arrow",
}  # fmt: skip
_SUFFIXES: dict[str, Format] = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
    ".arrows": "arrow",
}  # fmt: skip
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
_STORES = ("s3", "gs", "gcs")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


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
    constants : tuple of pairs
        Columns that the names of its folders give, with this file's value; None is a missing one.
    scheme, store : str, pyarrow.fs.FileSystem or None
        The object store that it lies in. It may hold credentials, so that it is never printed.
    member : str or None
        Its name in the zip archive at ``path``.
    """

    path: Path
    format: Format = "csv"
    compression: Compression | None = None
    size: int = 0
    constants: Constants = ()
    scheme: str = ""
    store: Any = field(default=None, repr=False, compare=False)
    member: str | None = None

    @property
    def address(self) -> str:
        """How messages name the file, or the archive that holds it."""
        return repr(self._shown)

    @property
    def is_plain(self) -> bool:
        """Whether it is a file of this machine, not packed."""
        return self.store is None and self.compression is None and self.member is None

    def __str__(self) -> str:
        inside = "" if self.member is None else f"/{self.member}"
        return f"{f'{self._shown}{inside}'!r} ({_NAMES[self.format]})"

    @property
    def _shown(self) -> str:
        """The path without the values in its folders' names, which are data."""
        columns = {name for name, _ in self.constants}
        parts = [(part, part.partition("=")) for part in self.path.parts]
        path = Path(*(f"{name}=…" if equals and name in columns else part for part, (name, equals, _) in parts))
        return f"{self.scheme}{path}"

    def opened(self) -> Any:
        """Open its bytes, unpacked if it is in an archive, for reading from the beginning."""
        if self.member is not None:
            with zipfile.ZipFile(self.seekable()) as archive:
                return archive.open(self.member)  # which keeps the archive open
        import pyarrow as pa

        return pa.OSFile(str(self.path)) if self.store is None else self.seekable()

    def seekable(self) -> Any:
        """Return what Arrow reads it from, at any place."""
        return self.path if self.store is None else self.store.open_input_file(str(self.path))


@dataclass(frozen=True, slots=True)
class StandardInput:
    """Whatever is piped in, said to be of ``format``."""

    format: Format

    def __str__(self) -> str:
        return f"standard input ({_NAMES[self.format]})"

    def opened(self) -> Any:
        """Return it without a buffer: a thread that waits inside sys.stdin's at exit would abort the interpreter."""
        try:
            return io.FileIO(sys.stdin.fileno(), closefd=False)
        except (OSError, ValueError):
            return sys.stdin.buffer


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
    seen = set()
    for location in found:
        identity: object = location
        if isinstance(location, File):
            at = location.path.stat() if location.store is None else None
            identity = (str(location.path) if at is None else (at.st_dev, at.st_ino), location.member)
        if identity in seen:  # past the bound of the unit
            raise SourceError(f"{location} is given twice, and each record would count twice. Name it once.")
        seen.add(identity)
    return found


def _locate(source: str, stdin_format: Format) -> Iterator[Location]:
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", source)
    if source == "-":
        yield StandardInput(stdin_format)
    elif scheme is not None and scheme[1].lower() not in _STORES:
        yield _database(source, scheme[1].lower())
    else:
        base, files = _local(source) if scheme is None else _stored(source)
        for file in files:
            yield from _checked(replace(file, constants=() if base is None else _hive_columns(file.path, base)))


def _local(source: str) -> tuple[Path | None, list[File]]:
    """Return the folder of a source, if it is one, and the files that it means."""
    path = Path(source)
    try:
        is_folder = path.is_dir()
    except OSError:  # where this user may not look, which reading then says
        is_folder = False
    if is_folder:
        below = [each for each in sorted(path.rglob("*")) if each.is_file() and not _is_hidden(each.relative_to(path))]
        if not below:
            raise SourceError(f"{source!r} is a folder without files. Check the name.")
        return path, [File(each) for each in below]
    if not re.search(r"[*?\[]", source) or path.exists():
        return None, [File(path)]
    hidden = path.name.startswith(".")
    matches = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    matches = [match for match in matches if match.is_file() and (hidden or not match.name.startswith("."))]
    if not matches:
        raise SourceError(f"no file matches {source!r}. Check the pattern and the directory.")
    return None, [File(match) for match in matches]


def _stored(source: str) -> tuple[Path, list[File]]:
    """Return where the folders of an object store's address begin, and its files: one, those below, or a glob's."""
    scheme, _, rest = source.partition("://")
    address, _, options = rest.partition("?")
    shown = f"{scheme}://{address.rpartition('@')[2]}"
    whole = Path(address.rpartition("@")[2])
    steady = next((i for i, part in enumerate(whole.parts) if re.search(r"[*\[]", part)), len(whole.parts))
    base, is_glob = Path(*whole.parts[:steady]), steady < len(whole.parts)

    def listed() -> tuple[Any, list[Path]]:
        from pyarrow import fs

        plain = re.split(r"[*\[]", address)[0]
        store, _ = fs.FileSystem.from_uri(f"{scheme}://{plain}" + (f"?{options}" if options else ""))
        kind = store.get_file_info(str(base)).type
        if not is_glob and kind != fs.FileType.Directory:
            return store, [base] if kind == fs.FileType.File else []
        entries = store.get_file_info(fs.FileSelector(str(base), recursive=True))
        below = sorted(Path(entry.path) for entry in entries if entry.type == fs.FileType.File and entry.size)
        if not is_glob:
            return store, [path for path in below if not _is_hidden(path.relative_to(base))]
        matches = [path for path in below if len(path.parts) == len(whole.parts)]
        return store, [path for path in matches if all(map(fnmatchcase, path.parts, whole.parts))]

    store, found = guarded(listed, lambda error: _unreachable(shown, error))
    if not found:
        raise SourceError(f"{shown!r} names no file. Check the name, and the credentials.")
    return base.parent if found == [base] else base, [File(path, scheme=f"{scheme}://", store=store) for path in found]


def _unreachable(shown: str, error: Exception) -> SourceError:
    """Say why a store did not answer; its own words may quote what was sent to it."""
    words = str(error)
    if isinstance(error, ImportError | NotImplementedError):
        return SourceError(f"{shown!r}: this pyarrow has no such file system. Install another, or copy the files.")
    if isinstance(error, FileNotFoundError) or "NO_SUCH" in words or "404" in words:
        return SourceError(f"{shown!r} does not exist. Check the name.")
    if "ACCESS_DENIED" in words or "403" in words or isinstance(error, PermissionError):
        return SourceError(f"{shown!r} may not be read with these credentials. Set them as for the store's own tools.")
    return SourceError(
        f"{shown!r} could not be reached ({type(error).__name__}). Check the address, the network and the credentials, "
        "and try it with the store's own tools."
    )


def _is_hidden(path: Path) -> bool:
    """Say whether a path below a folder is hidden: ``.crc`` files, ``_SUCCESS``, ``_metadata``, ``__MACOSX``."""
    return any(part.startswith((".", "_")) and "=" not in part for part in path.parts)


def _hive_columns(path: Path, base: Path) -> Constants:
    """Return the columns that folders between a base and a file name.

    Examples
    --------
    >>> _hive_columns(Path("flights/day=2026-11-15/carrier=B%2F6/part.parquet"), Path("flights"))
    (('day', '2026-11-15'), ('carrier', 'B/6'))
    """
    pairs = [part.partition("=") for part in path.relative_to(base).parts[:-1] if "=" in part]
    return tuple((name, None if value == _NO_VALUE else _unquoted(value, base)) for name, _, value in pairs if name)


def _unquoted(value: str, folder: Path) -> str:
    try:
        return unquote(value, errors="strict")  # by default two values that are not UTF-8 become one
    except UnicodeDecodeError:
        pass
    raise SourceError(f"{str(folder)!r} has a folder whose name is not percent-encoded UTF-8. Rename it.")


def _checked(file: File) -> Iterator[File]:
    """Return a file with its format, or those in it if it is a zip archive."""

    def members() -> list[zipfile.ZipInfo]:
        with zipfile.ZipFile(file.seekable()) as archive:
            return [each for each in archive.infolist() if not (each.is_dir() or _is_hidden(Path(each.filename)))]

    if file.path.suffix.lower() != ".zip":
        yield _checked_file(file)
        return
    for member in guarded(members, lambda error: unreadable(file.address, error)):
        kind, compression = _named(Path(member.filename), repr(f"{file.path.name}/{member.filename}"), b"")
        if compression or kind not in TEXT_FORMATS or member.flag_bits & 1:
            raise SourceError(
                f"{file.address} holds a file that is packed twice, encrypted, or not text. Unpack the archive, and "
                "name its files."
            )
        yield replace(file, format=kind, size=member.file_size, member=member.filename)


def _checked_file(file: File) -> File:
    place = file.address

    def first_bytes() -> tuple[int, bytes]:
        if file.store is None and not file.path.exists():
            raise FileNotFoundError
        if file.store is None and not file.path.is_file():
            raise SourceError(f"{place} is not a regular file. Pipe it in, and name the source '-'.")
        with file.opened() as stream:
            return stream.size(), stream.read(HEAD_BYTES)

    size, head = guarded(first_bytes, lambda error: unreadable(place, error))
    kind, compression = _named(file.path, place, head)
    if compression and kind not in TEXT_FORMATS:
        raise SourceError(f"{place} is compressed as a whole, which {_NAMES[kind]} is never. Unpack it first.")
    # JSON lines have no header: without a line they hold no record, and nothing is missing.
    if not size and (kind != "jsonl" or compression):
        raise SourceError(f"{place} is empty: not even its columns are named. Check how it was written.")
    found = replace(file, format=kind, compression=compression, size=size)
    check_magic(head, found, compression or kind)
    return found


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
    formats: dict[str, str | None] = {each: None if each in TEXT_FORMATS else name for each, name in _NAMES.items()}
    wanted = formats.get(kind, kind)
    if holds == wanted:
        return
    looks = f"it looks like {holds or 'text, or is damaged'}"
    if isinstance(location, StandardInput):
        raise SourceError(f"{location} is not of that format: {looks}. Say stdin_format=, or unpack it first.")
    named = "what its name says" if wanted is None or kind in get_args(Format) else kind
    raise SourceError(f"{location} is not {named}: {looks}. Rename it to what it is, or convert it.")


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
    named = tables[0] if tables else None
    return Database("sqlite" if system == "sqlite" else "postgresql", address, named, query if marker else None)
