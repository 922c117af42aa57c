"""Values that the command line reads itself: what Typer would make of them, in value, type and words of refusal."""

from __future__ import annotations

import inspect
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.main import get_command

from dpsketch.cli.values import read_plainly


class Colour(StrEnum):
    RED = "red"
    BLUE = "dark blue"


def whole(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("not a whole number")
    return int(text)


OPTIONS: dict[str, Any] = {
    "text": Annotated[str | None, typer.Option("--text")],
    "path": Annotated[Path | None, typer.Option("--path")],
    "there": Annotated[Path | None, typer.Option("--there", exists=True)],
    "number": Annotated[int | None, typer.Option("--number")],
    "real": Annotated[float | None, typer.Option("--real")],
    "port": Annotated[int | None, typer.Option("--port", min=0, max=9)],
    "colour": Annotated[Colour | None, typer.Option("--colour")],
    "parsed": Annotated[int | None, typer.Option("--parsed", parser=whole)],
    "flag": Annotated[bool | None, typer.Option("--flag/--no-flag")],
    "many": Annotated[list[str] | None, typer.Option("--many")],
    "numbers": Annotated[list[int] | None, typer.Option("--numbers")],
}
TEXTS = [
    "", " ", "0", "-3", "007", "+7", " 7", "7.0", "7.5", "-7.", ".5", "1e3", "1E3", "1e-3", "1e999", "1_000", "nan",
    "inf", "-inf", "٣", "9" * 19, "9" * 400, "red", "RED", "dark blue", "true", "a,b", "--", "é", "\udcff", "~", ".",
    "/", "/dev/null", "no/such/file", "a\0b",
]  # fmt: skip


def made(plainly: bool) -> Any:
    def command(**values: Any) -> None:
        raise SystemExit(repr({name: value for name, value in values.items() if value is not None}))

    given = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, given, default=None, annotation=OPTIONS[name]) for name in OPTIONS]
    described: Any = command
    described.__annotations__, described.__signature__ = OPTIONS, inspect.Signature(parameters)
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.command()(command)
    return read_plainly(get_command(app)) if plainly else get_command(app)


def outcome(command: Any, arguments: list[str], shown: pytest.CaptureFixture[str]) -> tuple[Any, str]:
    """Return how a command ended and what it said."""
    with pytest.raises(SystemExit) as stop:
        command(arguments, prog_name="try")
    return stop.value.code, shown.readouterr().err


@pytest.mark.parametrize("option", OPTIONS)
def test_values_are_what_typer_makes_of_them(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    plain, typers = made(True), made(False)
    for text in TEXTS:
        for arguments in ([f"--{option}={text}"], [f"--{option}={text}", f"--{option}=1"]):
            assert outcome(plain, arguments, capsys) == outcome(typers, arguments, capsys), (option, text)


def test_an_unreadable_file_is_refused_as_before(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    said = outcome(made(True), ["--path=/dev/null"], capsys)
    assert said == outcome(made(False), ["--path=/dev/null"], capsys)
    assert said[0] == 2
    assert "not readable" in said[1]
