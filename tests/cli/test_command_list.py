"""The list of all commands: each has a module, which loads when the command is used."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest

from dpsketch.cli.app import COMMANDS, app

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


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_its_name_and_a_first_sentence(name: str) -> None:
    found = app.get_command(click.Context(app), name)
    assert found is not None
    assert found.name == name
    assert found.get_short_help_str(1000)


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
def test_shells_complete_commands_kinds_and_options(words: str, expected: list[str]) -> None:
    asked = {"_DPSKETCH_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    shown = subprocess.run(
        [sys.executable, "-m", "dpsketch"], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    ).stdout
    assert [line.partition(",")[2] for line in shown.split()] == expected
