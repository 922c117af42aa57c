"""Run the command line as a person would, in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dpsketch.cli import main


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Runner = Callable[..., Result]


@pytest.fixture
def dpsketch(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Runner:
    """Run in this process, with a ledger of the test's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("DPSKETCH_LEDGER", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["dpsketch", *map(str, arguments)])
        capfd.readouterr()
        try:
            main()
            code: int | str | None = 0
        except SystemExit as stop:
            code = stop.code
        captured = capfd.readouterr()
        return Result(0 if code is None else int(code), captured.out, captured.err)

    return run
