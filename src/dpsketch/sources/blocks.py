"""CSV in blocks of whole rows that are parsed side by side: to parse costs more than most of what follows it.

Arrow's own reader of streams parses on one thread. Here the bytes are cut at ends of rows, which takes a look at the
quotes only: a quote opens a field where it stands at its beginning, and an end of line between two quotes is text.
Where that is not so plain, a quote within a field, one that is never closed, a row longer than a block or one that does
not parse, all that is left goes back into the stream, for the reader that takes one row after the other and says what
is wrong.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from dpsketch.sources.streams import ByteStream
from dpsketch.threads import thread_count

__all__ = ["BLOCK", "BOM", "conversion", "parsed_blocks"]

BLOCK = 2 << 20  # one row has to fit; larger blocks are not faster
BOM = b"\xef\xbb\xbf"
"""A mark that may begin a file, and is text in any row.

Arrow drops it from the beginning of what it is handed. A row that begins with it would be another key wherever a block
begins there, which is up to all rows before it. So an empty line, which Arrow skips, goes first.
"""

_MOST = 4  # threads that parse; what takes their rows keeps pace with no more
_LOOK = 1 << 16  # bytes whose quotes are looked at together: where they stand stays in the cache
_QUOTE, _ENDS = ord('"'), b"\r\n"


def parsed_blocks(
    stream: ByteStream, names: list[str], wanted: list[str], separator: str, *, ahead: bool
) -> Generator[tuple[Any, int], None, None]:
    """Yield record batches, and the bytes read until then, in the order of the rows; leave in the stream what is left.

    Parameters
    ----------
    stream : ByteStream
        What follows the header.
    names : list of str
        The header's names.
    wanted : list of str
        Which of them are read.
    separator : str
        What stands between fields.
    ahead : bool
        Whether blocks are read before those before them are parsed: a pipe may be silent for long.
    """
    threads = min(_MOST, thread_count())
    waiting: deque[tuple[memoryview, Future[Any], int]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="dpsketch-parser")
    try:
        more = True
        while more or waiting:
            if more and len(waiting) <= (threads if ahead else 0):
                block = _next_block(stream, separator)
                more = bool(block)
                if more:
                    parsed = pool.submit(_parsed, block, names, wanted, separator)
                    waiting.append((block, parsed, stream.done))
                continue
            _, parsed, done = waiting[0]
            try:
                batches = parsed.result()
            except (pa.ArrowException, ValueError):
                stream.put_back(b"".join(block for block, _, _ in waiting))
                return
            waiting.popleft()
            for batch in batches:
                yield batch, done
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _next_block(stream: ByteStream, separator: str) -> memoryview:
    """Take whole rows from a stream: all but the last one, which may go on; nothing where that takes a closer look."""
    block = stream.read_block(BLOCK)
    end = _end_of_rows(block, separator, last=len(block) < BLOCK)
    rows = memoryview(block)
    stream.put_back(bytes(rows[end:]))
    return rows[:end]


def _end_of_rows(block: bytes | bytearray, separator: str, *, last: bool) -> int:
    """Return where the last whole row of a block ends, 0 if nobody can say."""
    if b'"' not in block:
        return len(block) if last else block.rfind(b"\n") + 1
    quotes = _quotes(block, separator)
    if quotes is None:
        return 0
    if last:
        return 0 if quotes % 2 else len(block)
    end = len(block)
    while True:  # more than once where an end of line is text, or where rows end with a \r alone
        before, end = end, block.rfind(b"\n", 0, end)
        quotes -= block.count(b'"', end + 1, before)
        if quotes % 2 == 0:
            return end + 1


def _quotes(block: bytes | bytearray, separator: str) -> int | None:
    """Count quotes, None if one of those that open a field stands in the middle of it.

    By turns they open and close; of two in a row inside a field, which are one that is meant, the second opens again.
    """
    data = np.frombuffer(block, np.uint8)
    begins = np.zeros(256, np.bool_)  # what may stand before a field
    begins[[ord(separator), _QUOTE, *_ENDS]] = True
    count = 0
    for low in range(0, len(data), _LOOK):
        found = np.flatnonzero(data[low : low + _LOOK] == _QUOTE)
        opening = found[count % 2 :: 2]
        # What stands before each; the first byte begins a row. (To raise instead of clip takes twice as long.)
        before = data[low - 1 :].take(opening, mode="clip") if low else data.take(opening[opening > 0] - 1)
        if not begins.take(before, mode="clip").all():
            return None
        count += len(found)
    return count


def _parsed(rows: memoryview, names: list[str], wanted: list[str], separator: str) -> list[Any]:
    block: Any = rows.obj
    whole = b"\n" + rows if rows[: len(BOM)] == BOM else rows
    table = pyarrow.csv.read_csv(
        pa.BufferReader(whole),
        read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=len(whole) + 1, column_names=names),
        parse_options=pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=b'"' in block),
        convert_options=conversion(wanted, check_utf8=not block.isascii()),
    )
    return list(table.to_batches())


def conversion(wanted: list[str], *, check_utf8: bool = True) -> Any:
    """Return how fields are read: as text, an unquoted empty one as null. What is ASCII is UTF-8 without a look."""
    return pyarrow.csv.ConvertOptions(
        include_columns=wanted,
        column_types=dict.fromkeys(wanted, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        check_utf8=check_utf8,
    )
