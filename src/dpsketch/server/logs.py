"""Structured logs: one JSON object a line on standard error, without keys, reports, addresses or query strings."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from types import TracebackType
from typing import Literal

__all__ = ["configure", "log", "place_of"]

Level = Literal["debug", "info", "warning", "error"]
Plain = str | int | float | bool | None

_NUMBERS: dict[Level, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_logger = logging.getLogger("dpsketch.server")


def log(level: Level, event: str, **facts: Plain) -> None:
    """Write one line. ``event`` is a fixed phrase; facts are numbers and names that the service itself chose."""
    _logger.log(_NUMBERS[level], event, extra={"facts": facts})


def place_of(trace: TracebackType | None) -> str:
    """Say where an error was raised; its text may quote what was sent, so that is never logged."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"


def _event(record: logging.LogRecord) -> str:
    """Return what happened. A foreign record's arguments may be anything, an address say: its fixed part must do."""
    if record.name == "asyncio":
        return "event loop"  # its messages have no fixed part: they quote callbacks, arguments and results
    if record.name == "py.warnings":
        return "warning of a library"  # its message is its argument, and may quote what was computed with
    if not isinstance(record.msg, str):
        return type(record.msg).__name__
    # Uvicorn logs what stopped the start as text, traceback and all; the application has said why in a line of its own.
    first = record.msg.partition("\n")[0]
    return "the application did not start" if first.startswith("Traceback") else first


class _Json(logging.Formatter):
    """Formats a record as JSON. Of an exception it tells the type and the place, never the text or the values."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Plain] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": _event(record),
        }
        if record.name != _logger.name:
            line["logger"] = record.name
        facts: dict[str, Plain] = getattr(record, "facts", {})
        line |= facts
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            line["place"] = place_of(record.exc_info[2])
        return json.dumps(line, ensure_ascii=False)


def configure(level: Level) -> None:
    """Send this process's logs to standard error: ours from ``level`` on, those of libraries from warnings on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    _logger.setLevel(_NUMBERS[level])
    # Whatever Python itself would write beside the log becomes a line of it.
    logging.captureWarnings(True)
    sys.unraisablehook = lambda found: log("error", "error ignored", error=found.exc_type.__name__)
    threading.excepthook = lambda found: log("error", "thread ended", error=found.exc_type.__name__)
