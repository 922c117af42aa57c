"""CSV that is parsed block by block, side by side, gives the rows and the refusals of a reader that goes row by row."""

from __future__ import annotations

import random
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from dpsketch.errors import SourceError
from dpsketch.sources import Columns, blocks, open_source, text

_PLAIN = ["a", "bc", "", "é", "日本", "x y", "0.5", "'", "#"]
_IN_QUOTES = ['"a,b"', '""', '"a\nb"', '"a\r\nb"', '"x""y"', '""""', '"\n"', '"tail"more', '"é\n\n"', '","']
_STRAY = ['5" pipe', 'a""b', '"a"b"c"', ' "x"']

Outcome = tuple[list[tuple[str | None, ...]], str | None, str | None]


def _outcome(path: Path) -> Outcome:
    """Return the rows that are read, and the refusal with its hint if one ends them."""
    rows: list[tuple[str | None, ...]] = []
    try:
        for batch in open_source([str(path)], Columns(key="k", user="u")):
            assert batch.key is not None
            assert batch.user is not None
            rows += zip(batch.key.to_pylist(), batch.user.to_pylist(), strict=True)
    except SourceError as error:
        return rows, str(error), getattr(error, "sensitive_hint", None)
    return rows, None, None


def _row_by_row(path: Path) -> Outcome:
    """Read with Arrow's own reader of streams, from the first row on."""

    def nothing(*_: Any, **__: Any) -> Generator[Any, None, None]:
        yield from ()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(text, "parsed_blocks", nothing)
        return _outcome(path)


def _file(chance: random.Random, fields: list[str], faults: bool) -> str:
    end = chance.choice(["\n", "\r\n", "\r"])
    lines = ['"k",u,"other one"']
    for _ in range(chance.randint(0, 40)):
        width = 3 if not faults or chance.random() < 0.95 else chance.choice([2, 4])
        lines.append(",".join(["k" + chance.choice(_PLAIN), *chance.choices(fields, k=width - 1)]))
        if chance.random() < 0.1:
            lines.append("")
    return (
        end.join(lines) + (end if chance.random() < 0.7 else "") + ('"never closed' if faults and end == "\r" else "")
    )


@pytest.mark.parametrize(
    "fields",
    [_PLAIN, _PLAIN + _IN_QUOTES, _IN_QUOTES, [*_PLAIN * 12, *_IN_QUOTES, *_STRAY]],
    ids=["plain", "some in quotes", "all in quotes", "stray quotes"],
)
@pytest.mark.parametrize("faults", [False, True], ids=["well formed", "with faults"])
def test_blocks_give_the_rows_and_refusals_of_one_row_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: list[str], faults: bool
) -> None:
    chance = random.Random(f"{fields}{faults}")
    path = tmp_path / "t.csv"
    cut = 0
    for _ in range(40):
        path.write_text(_file(chance, fields, faults), encoding="utf-8", newline="")
        monkeypatch.setattr(blocks, "BLOCK", chance.choice([30, 64, 200]))
        parsed: list[Any] = []
        monkeypatch.setattr(blocks, "_parsed", _noted(blocks._parsed, parsed))
        ours, expected = _outcome(path), _row_by_row(path)
        monkeypatch.undo()
        assert ours[1:] == expected[1:]
        # Before a refusal, rows of blocks that are whole have come out: nothing is released of them.
        assert ours[0][: len(expected[0])] == expected[0] if faults else ours[0] == expected[0]
        cut += len(parsed) > 1
    assert cut > 5  # else nothing is shown


def _noted(function: Any, calls: list[Any]) -> Any:
    def noted(*given: Any) -> Any:
        calls.append(given)
        return function(*given)

    return noted


def test_an_odd_row_is_named_by_its_number_wherever_the_blocks_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 64)
    path = tmp_path / "t.csv"
    path.write_text("k,u\n" + "a,b\n" * 100 + "a,b,c\n" + "a,b\n" * 100, encoding="utf-8")
    with pytest.raises(SourceError) as caught:
        list(open_source([str(path)], Columns(key="k")))
    assert "Row 102 has 3 fields" in str(caught.value.sensitive_hint)


def test_text_that_is_not_utf8_is_refused_in_whatever_block_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 64)
    path = tmp_path / "t.csv"
    path.write_bytes(b"k,u\n" + b"a,b\n" * 100 + b"\xff,b\n")
    with pytest.raises(SourceError, match="not UTF-8"):
        list(open_source([str(path)], Columns(key="k")))


def test_a_block_without_an_end_of_row_is_read_in_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 64)
    path = tmp_path / "t.csv"
    path.write_text("k,u\na,b\n" + "x" * 500 + ",b\nc,d\n", encoding="utf-8")
    keys = [key for batch in open_source([str(path)], Columns(key="k")) for key in batch.key.to_pylist()]
    assert keys == ["a", "x" * 500, "c"]


def test_reading_may_stop_after_any_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 64)
    path = tmp_path / "t.csv"
    path.write_text("k,u\n" + "a,b\n" * 1000, encoding="utf-8")
    reading = open_source([str(path)], Columns(key="k"))
    assert next(reading).rows > 0
    reading.close()


def _slow_end(block: bytes, *, last: bool) -> int:
    """Return what ends the last whole row, byte by byte: the oracle of the look at quotes."""
    inside, end = False, 0
    for at, byte in enumerate(block):
        if byte == ord('"'):
            if not inside and at > 0 and block[at - 1] not in b',"\r\n':
                return 0
            inside = not inside
        elif byte == ord("\n") and not inside:
            end = at + 1
    return (0 if inside else len(block)) if last else end


@pytest.mark.parametrize("look", [1, 3, 1 << 16])
@pytest.mark.parametrize("last", [False, True])
def test_rows_end_where_a_slow_look_says(look: int, last: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_LOOK", look)
    draw = random.Random(1)
    found = []
    for _ in range(3000):
        block = bytes(draw.choices(b'a,"\n\r', weights=[3, 2, 4, 3, 1], k=draw.randrange(1, 14)))
        found.append(blocks._end_of_rows(block, ",", last=last))
        assert found[-1] == _slow_end(block, last=last), block
    assert 500 < sum(map(bool, found)) < 2500
