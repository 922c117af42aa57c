"""An option is given once: of two values, the parser would take the last and say nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import typer

__all__ = ["options_once"]


def options_once(command: Any) -> Any:
    """Let a command, and every command below it, refuse an option that is given twice; lists may be repeated."""
    for below in getattr(command, "commands", {}).values():
        options_once(below)
    made = command.make_parser

    def make_parser(context: Any) -> Any:
        parser = made(context)
        parsed = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            found, rest, order = parsed(args=args)
            # An argument comes up once, however many values it has.
            for option, times in Counter(order).items():
                if times > 1 and not (option.multiple or context.resilient_parsing):
                    raise typer.BadParameter(
                        "it is given more than once, and only the last would count. Give it once.",
                        ctx=context,
                        param=option,
                    )
            return found, rest, order

        parser.parse_args = parse_args
        return parser

    command.make_parser = make_parser
    return command
