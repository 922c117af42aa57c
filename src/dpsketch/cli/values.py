"""What the texts of options become, where that is plain.

Typer leaves it to pydantic, which takes longer to load than a question takes to be answered. So texts, paths and
numbers that anybody would read in one way are read here; all else, and whatever is refused, goes Typer's way, with its
words.
"""

from __future__ import annotations

import os
import re
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

__all__ = ["plain", "read_plainly"]

_PLAIN_NUMBER = {
    int: re.compile(r"-?[0-9]{1,18}", re.ASCII),
    float: re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?(e-?[0-9]{1,3})?", re.ASCII),
}
# What a path is not asked for, unless an option says so.
_PATH_DEMANDS = ("exists", "writable", "resolve_path", "allow_dash", "path_type")


def read_plainly(command: Any) -> Any:
    """Let a command, and every command below it, read plain values itself."""
    for below in getattr(command, "commands", {}).values():
        read_plainly(below)
    made = command.get_params
    command.get_params = lambda context: plain(made(context))
    return command


def plain(parameters: list[Any]) -> list[Any]:
    """Let parameters of a command read plain values themselves; those of a Typer without pydantic stay as they are."""
    for parameter in parameters:
        typers = getattr(parameter, "get_runtime_param", None)
        if typers is not None and not isinstance(typers, _Values):
            parameter.get_runtime_param = _Values(parameter.type_descriptor, typers)
    return parameters


class _NotPlain(Exception):
    """A value that Typer has to judge."""


class _Values:
    """Reads the values of one parameter; it stands where Typer has what asks pydantic."""

    def __init__(self, described: Any, typers: Any) -> None:
        self._annotation, self._info = described.annotation, described.parameter_info
        self._typers = typers

    def __call__(self) -> _Values:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            return self._read(value, param.multiple or param.nargs == -1)
        except (_NotPlain, ValueError):
            return self._typers().coerce(value, param=param, ctx=ctx)

    def _read(self, value: Any, many: bool) -> Any:
        if value is None:
            return () if many else None
        if not many:
            return self._one(self._annotation, value)
        if get_origin(self._annotation) is not list or not isinstance(value, (list, tuple)):
            raise _NotPlain
        return [self._one(get_args(self._annotation)[0], each) for each in value]

    def _one(self, kind: Any, value: Any) -> Any:
        if self._info.parser is not None:
            return self._info.parser(value)
        if kind is str and type(value) is str:
            return value
        if kind is Path and type(value) is str and self._plain_path(value):
            return Path(value)
        if kind in _PLAIN_NUMBER and self._info.min is None and self._info.max is None:
            number = _PLAIN_NUMBER[kind].fullmatch(value) if type(value) is str else type(value) in (int, kind)
            if number:
                return kind(value)
        if isinstance(kind, type) and issubclass(kind, Enum) and type(value) in (str, kind):
            return kind(value)
        raise _NotPlain

    def _plain_path(self, value: str) -> bool:
        info = self._info
        demanding = any(getattr(info, name) for name in _PATH_DEMANDS)
        if demanding or not (info.file_okay and info.dir_okay and info.readable):
            return False
        try:
            Path(value).stat()
        except OSError:
            return True  # nothing is there yet
        return os.access(value, os.R_OK)
