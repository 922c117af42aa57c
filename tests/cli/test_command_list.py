"""The list of all commands: each has a module, which loads when the command is used."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

ASKING = """
import sys
from dpsketch.cli import main
sys.argv = ["dpsketch", "query", "--help"]
try:
    main()
except SystemExit:
    pass
print(sorted(name for name in sys.modules if name.startswith("dpsketch.cli.")))
"""


def test_a_command_loads_no_other_one() -> None:
    shown = subprocess.run([sys.executable, "-c", ASKING], capture_output=True, text=True, check=True).stdout
    loaded = shown.splitlines()[-1]
    assert "dpsketch.cli.query" in loaded
    assert not [name for name in ("run", "release", "plan", "ledger", "serve") if f"dpsketch.cli.{name}'" in loaded]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("dpsketch qu", ["query"]),
        ("dpsketch run cou", ["counts"]),
        ("dpsketch run counts visits.csv --wid", ["--width"]),
        ("dpsketch plan hist", ["histogram", "histogram-votes"]),
    ],
)
def test_shells_complete_commands_kinds_and_options(
    dpsketch: Any, monkeypatch: pytest.MonkeyPatch, words: str, expected: list[str]
) -> None:
    monkeypatch.setenv("_DPSKETCH_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    assert [line.partition(",")[2] for line in dpsketch().out.split()] == expected
