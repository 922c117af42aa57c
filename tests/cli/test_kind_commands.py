"""One command for each kind: its own options, in groups, and errors that say where another option belongs."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from dpsketch.cli.output import table
from dpsketch.kinds import KINDS

STARTED = [kind.name for kind in KINDS.values() if kind.has_command]
# Options that are no argument of a constructor: they shape a kernel, or choose the sketch.
READ = {"density": {"bandwidth", "power"}, "distinct": {"exact"}}


def flags(text: str) -> set[str]:
    return set(re.findall(r"^ +(?:-\w, )?(--[\w-]+)", text, re.MULTILINE))


@pytest.mark.parametrize("name", STARTED)
def test_help_of_a_kind_shows_its_own_options(dpsketch: Any, name: str) -> None:
    shown = dpsketch("run", name, "--help")
    assert shown.code == 0
    own = {f"--{option.name.replace('_', '-')}" for option in (*KINDS[name].options, *KINDS[name].release_options)}
    other = {f"--{option.name.replace('_', '-')}" for kind in KINDS.values() for option in kind.options} - own
    assert own <= flags(shown.out)
    assert not other & flags(shown.out)
    first = shown.out.split("\nOptions:\n")[1].split("\n\n")[0]
    assert {"--where", "--user", "--epsilon", "--delta", "--dataset", "--output", "--dry-run"} < flags(first)
    assert len(flags(first)) <= 14


@pytest.mark.parametrize("name", STARTED)
def test_the_options_of_a_row_are_arguments_of_its_sketches(name: str) -> None:
    sketches = [kind.sensitive for kind in KINDS.values() if name in (kind.name, kind.command)]
    arguments = {argument for sketch in sketches for argument in inspect.signature(sketch).parameters}
    assert {option.name for option in KINDS[name].options} <= arguments | READ.get(name, set())


@pytest.mark.parametrize("command", ["run", "build"])
def test_a_command_without_its_kind_says_what_is_missing(dpsketch: Any, command: str) -> None:
    bare = dpsketch(command)
    assert bare.code == 2
    assert all(f"  {name} " in bare.err for name in STARTED)
    wrong = dpsketch(command, "visits.csv", "--key", "url")
    assert wrong.code == 2
    assert "'visits.csv' is not a kind of sketch" in wrong.err
    assert "histogram, counts" in wrong.err
    early = dpsketch(command, "--key", "url", "histogram", "visits.csv")
    assert early.code == 2
    assert f"dpsketch {command} KIND SOURCE… --key" in early.err


def test_an_option_of_another_kind_is_refused_with_its_kinds(dpsketch: Any) -> None:
    refused = dpsketch("run", "histogram", "visits.csv", "--key", "url", "--bits", "3")
    assert refused.code == 2
    assert "--bits does not apply to histogram. It is an option of ranges." in refused.err
    misspelled = dpsketch("run", "histogram", "visits.csv", "--kye", "url")
    assert "Did you mean" in misspelled.err
    assert "--key" in misspelled.err


def test_a_table_shows_control_characters_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    table(["key", "estimate"], [["a\x1b[2J\n", "1"], ["日本", "22"]])
    assert capsys.readouterr().out == (
        "key         estimate\n──────────  ────────\na\\x1b[2J\\n         1\n日本              22\n"
    )
