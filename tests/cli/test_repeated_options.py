"""Options of commands: each kind has its own, an option is given once, and errors say where another one belongs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from dpsketch.cli.app import app
from dpsketch.kinds import KINDS

STARTED = [kind.name for kind in KINDS.values() if kind.has_command]
# Options that are no argument of a constructor: they shape a kernel, or choose the sketch.
READ = {"density": {"bandwidth", "power"}, "distinct": {"exact"}}


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


def flags(text: str) -> set[str]:
    return set(re.findall(r"^ +(?:-\w, )?(--[\w-]+)", text, re.MULTILINE))


def test_each_option_of_each_command_is_given_once(dpsketch: Any) -> None:
    """Of two values, one would count in silence."""
    assert {"run counts", "query", "ledger show", "local report", "serve token create"} <= COMMANDS.keys()
    for name, command in COMMANDS.items():
        single = [one for one in command.params if one.param_type_name == "option" and not one.multiple and one.opts]
        for option in single:
            words = [option.opts[0]] * 2 if option.is_flag else [option.opts[0], "1"] * 2
            with pytest.raises(click.UsageError, match="given more than once") as refused:
                command.make_context(name, words)
            assert option.opts[0] in refused.value.format_message(), (name, option.name)


def test_nothing_is_read_charged_or_written_where_an_option_is_repeated(dpsketch: Any, tmp_path: Path) -> None:
    """Also with the same value: whoever writes it twice meant something else."""
    (tmp_path / "t.csv").write_text("k,v\nsecret,1\n")
    refused = dpsketch("run", "histogram", "t.csv", "--key=k", "--key=k", "-e", "1", "-d", "1e-6", "-o", "out.dps")
    assert refused.code == 2
    assert "given more than once" in refused.err
    assert "secret" not in refused.err
    assert {path.name for path in tmp_path.iterdir()} == {"t.csv"}


def test_help_of_a_kind_shows_its_own_options_which_its_sketches_take(dpsketch: Any) -> None:
    for name in STARTED:
        kind = KINDS[name]
        shown = dpsketch("run", name, "--help")
        assert shown.code == 0
        own = {f"--{option.name.replace('_', '-')}" for option in (*kind.options, *kind.release_options)}
        other = {f"--{option.name.replace('_', '-')}" for each in KINDS.values() for option in each.options} - own
        assert own <= flags(shown.out)
        assert not other & flags(shown.out)
        sketches = [each.sensitive for each in KINDS.values() if name in (each.name, each.command)]
        arguments = {argument for sketch in sketches for argument in inspect.signature(sketch).parameters}
        assert {option.name for option in kind.options} <= arguments | READ.get(name, set())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], ["  histogram ", "  counts ", "  ranges "]),
        (["run", "visits.csv", "--key", "url"], ["'visits.csv' is not a kind of sketch", "histogram, counts"]),
        (["run", "histogram", "v.csv", "--key", "url", "--bits", "3"], ["does not apply to histogram", "of ranges."]),
        (["run", "histogram", "v.csv", "--kye", "url"], ["Did you mean", "--key"]),
        (["run", "table", "v.csv", "--by", "url"], ["dpsketch table SOURCE"]),
        (["top", "FILE", "3"], ["-n 3"]),
    ],
)
def test_wrong_usage_is_told_what_is_right(dpsketch: Any, arguments: list[str], words: list[str]) -> None:
    refused = dpsketch(*arguments)
    assert refused.code == 2
    assert all(each in refused.err for each in words)


def test_shells_complete_commands_kinds_and_options(dpsketch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_DPSKETCH_COMPLETE", "bash_complete")
    for words, expected in (("qu", "query"), ("run cou", "counts"), ("run counts visits.csv --wid", "--width")):
        monkeypatch.setenv("COMP_WORDS", f"dpsketch {words}")
        monkeypatch.setenv("COMP_CWORD", str(words.count(" ") + 1))
        assert dpsketch().out.split() == [f"plain,{expected}"]
