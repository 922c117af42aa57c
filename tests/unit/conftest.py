"""Standard input as a real pipe, and a ledger in a file of its own."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
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
