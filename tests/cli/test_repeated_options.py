"""An option that is given twice is refused by every command: of two values, one would count in silence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import dpsketch as dps
from dpsketch.cli.app import app


def every_command(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(command)
    if name:
        yield name, command
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from every_command(found, f"{name} {below}".strip())


COMMANDS = dict(every_command(app))


def test_the_walk_finds_commands_below_commands() -> None:
    assert {"run counts", "query", "ledger show", "ledger create", "local report"} <= COMMANDS.keys()
    assert any(name.startswith("serve token ") for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_of_each_command_is_given_once(dpsketch: Any, name: str) -> None:
    command = COMMANDS[name]
    single = [one for one in command.params if one.param_type_name == "option" and not one.multiple and one.opts]
    for option in single:
        words = [option.opts[0]] * 2 if option.is_flag else [option.opts[0], "1"] * 2
        refused = dpsketch(*name.split(), *words)
        assert refused.code == 2, (name, option.name)
        assert "given more than once" in refused.err, (name, option.name)
        assert option.opts[0] in refused.err


@pytest.mark.parametrize(
    "twice",
    [
        ["--key", "k", "--key", "v"],
        ["--key=k", "--key=k"],  # the same value, too: whoever writes it twice meant something else
        ["--key", "k", "--epsilon", "1", "-e", "5"],
        ["--key", "k", "-e1", "-e5"],
        ["--key", "k", "--unknown", "--unknown"],
    ],
)
def test_nothing_is_read_charged_or_written_where_an_option_is_repeated(
    dpsketch: Any, tmp_path: Path, twice: list[str]
) -> None:
    (tmp_path / "t.csv").write_text("k,v\nsecret,1\n")
    budget = [] if "-e" in " ".join(twice) else ["--epsilon", "1"]
    refused = dpsketch("run", "histogram", "t.csv", *twice, *budget, "--delta", "1e-6", "-o", "out.dps")
    assert refused.code == 2
    assert "given more than once" in refused.err
    assert "secret" not in refused.err
    assert {path.name for path in tmp_path.iterdir()} == {"t.csv"}


def test_an_option_that_is_a_list_is_repeated_as_before(dpsketch: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k\na\n")
    made = dpsketch(
        "run", "moment", "t.csv", "--key", "k", "--p", "0.5", "--p", "1", "--epsilon", "1", "--delta", "0",
        "--no-ledger", "-o", "out.dps",
    )  # fmt: skip
    assert made.code == 0, made.err
    assert dps.load("out.dps").kind == "moments"


def test_sources_keys_and_other_arguments_may_be_many(dpsketch: Any, tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("k\nx\n")
    made = dpsketch("run", "counts", "a.csv", "b.csv", "--key", "k", "-e", "1", "-d", "0", "--no-ledger", "-o", "o.dps")
    assert made.code == 0, made.err
    assert dpsketch("query", "o.dps", "x", "y", "x").code == 0


@pytest.mark.parametrize("name", ["top", "plot"])
def test_a_number_without_its_option_is_refused_with_a_hint(dpsketch: Any, name: str) -> None:
    refused = dpsketch(name, "FILE", "3", "-o", "p.png") if name == "plot" else dpsketch(name, "FILE", "3")
    assert refused.code == 2
    assert "-n 3" in refused.err
    assert "-n" not in dpsketch(name, "FILE", "other").err
