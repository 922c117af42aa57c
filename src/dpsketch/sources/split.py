"""Share files out among tasks that read at the same time, each record in exactly one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dpsketch.errors import InvalidInput
from dpsketch.sources.failures import guarded, unreadable
from dpsketch.sources.locations import File, locate

__all__ = ["split_files"]


def split_files(sources: Sequence[str], *, part_bytes: int) -> list[tuple[File, ...]]:
    """Return lists of files, or of row groups of Parquet files, of about ``part_bytes`` each on disk.

    Small files share a list. A larger Parquet file is cut between row groups; files of other formats stay whole. Paths
    are absolute, so that another process, or another machine with the same folders, finds them.

    Raises
    ------
    InvalidInput
        If a source is a pipe or a database, which only one process can read.
    """
    parts: list[tuple[File, ...]] = []
    waiting: list[File] = []
    held = 0
    for piece in (piece for file in _files(sources) for piece in _pieces(file, part_bytes)):
        if waiting and held + piece.size > part_bytes:
            parts.append(tuple(waiting))
            waiting, held = [], 0
        waiting.append(piece)
        held += piece.size
    return [*parts, tuple(waiting)]


def _files(sources: Sequence[str]) -> Iterator[File]:
    for location in locate(sources, "csv"):
        if not isinstance(location, File) or location.store is not None or location.constants or location.member:
            raise InvalidInput(f"{location} cannot be shared out among tasks. Name files that every machine can open.")
        yield replace(location, path=location.path.resolve())


def _pieces(file: File, part_bytes: int) -> Iterator[File]:
    """Cut a file that is too large; the size of a piece is its share of the file's."""
    if file.format != "parquet" or file.size <= part_bytes:
        yield file
        return
    from pyarrow.parquet import read_metadata

    footer = guarded(lambda: read_metadata(file.path), lambda error: unreadable(str(file), error))
    whole = sum(footer.row_group(group).total_byte_size for group in range(footer.num_row_groups))
    start = held = 0
    for group in range(footer.num_row_groups):
        share = file.size * footer.row_group(group).total_byte_size // max(1, whole)
        if group > start and held + share > part_bytes:
            yield replace(file, size=held, row_groups=(start, group))
            start, held = group, 0
        held += share
    yield replace(file, size=held, row_groups=(start, footer.num_row_groups))
