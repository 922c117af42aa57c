"""The list of all commands: it says of each what the command says of itself, and loads none of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dpsketch.cli.app import COMMANDS, _Commands

LISTING = """
import sys
from dpsketch.cli.app import app
sys.argv = ["dpsketch", "--help"]
try:
    app()
except SystemExit:
    pass
print(sorted(name for name in sys.modules if name.startswith("dpsketch.cli.")))
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_listed_by_its_own_first_sentence(name: str) -> None:
    assert COMMANDS[name][1] == _Commands()[name].get_short_help_str(1000)


def test_the_list_loads_no_command() -> None:
    shown = subprocess.run([sys.executable, "-c", LISTING], capture_output=True, text=True, check=True).stdout
    assert all(f"  {name} " in shown for name in COMMANDS)
    assert shown.splitlines()[-1] == str(["dpsketch.cli.app", "dpsketch.cli.once", "dpsketch.cli.values"])
