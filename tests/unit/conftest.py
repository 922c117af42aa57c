"""Standard input as a real pipe, and a ledger in a file of its own that somebody may edit."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from dpsketch.ledger import Ledger
from ledgers import begun
from reading import Pipe


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    """Make standard input a real pipe that somebody else writes to."""
    with ExitStack() as opened:

        def feed(data: bytes) -> None:
            reading, writing = os.pipe()

            def write() -> None:
                # The reader may refuse before it has read all.
                with suppress(BrokenPipeError), os.fdopen(writing, "wb") as target:
                    target.write(data)

            writer = threading.Thread(target=write)
            writer.start()
            opened.callback(writer.join)
            monkeypatch.setattr(sys, "stdin", opened.enter_context(os.fdopen(reading, encoding="utf-8")))

        yield feed


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the ledger lies."""
    return tmp_path / "budget.db"


@pytest.fixture
def ledger(path: Path) -> Ledger:
    """A ledger without a dataset."""
    return begun(path)


@pytest.fixture
def tamper(path: Path) -> Callable[[str], None]:
    """Change the rows of the ledger behind its back."""

    def change(statements: str) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(statements)
            connection.commit()

    return change
