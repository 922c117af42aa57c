"""What every command refuses before it runs: an option given twice, of which the parser would take the last.

What is refused anyway, and often tried, comes with a hint: a value that begins with a minus, a number without its -n.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import typer

__all__ = ["options_once"]

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
_NEGATIVE = re.compile(r"-[\d.]")
_MINUS = "what begins with a minus is taken for an option. Write -- before it, as in: dpsketch query FILE -- -20:0"


def options_once(command: Any) -> Any:
    """Let a command, and every command below it, refuse an option that is given twice; lists may be repeated."""
    for below in getattr(command, "commands", {}).values():
        options_once(below)
    made = command.make_parser

    def make_parser(context: Any) -> Any:
        parser = made(context)
        parsed = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            try:
                found, rest, order = parsed(args=args)
            except _UsageError as error:
                if _NEGATIVE.match(getattr(error, "option_name", None) or ""):
                    raise typer.BadParameter(_MINUS, ctx=context) from None
                raise
            # An argument comes up once, however many values it has.
            for option, times in Counter(order).items():
                if times > 1 and not (option.multiple or context.resilient_parsing):
                    raise typer.BadParameter(
                        "it is given more than once, and only the last would count. Give it once.",
                        ctx=context,
                        param=option,
                    )
            if rest and not context.allow_extra_args and rest[0].isdecimal() and _says_how_many(command):
                raise typer.BadParameter(f"how many is said with -n, as in: -n {rest[0]}", ctx=context)
            return found, rest, order

        parser.parse_args = parse_args
        return parser

    command.make_parser = make_parser
    return command


def _says_how_many(command: Any) -> bool:
    return any("-n" in option.opts for option in command.params)
