"""The body of a request with reports: one JSON object, a JSON array, JSON lines, compact bytes, or an Arrow stream."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from dpsketch.local.wire import Form, ParsedMessages
from dpsketch.server.refusals import Refused

__all__ = ["LARGE", "REPORTS_BODY", "Sorted", "sort_body"]

T = TypeVar("T")

LARGE = 1 << 16
"""From so many bytes on reports are taken apart in a thread, so that small requests do not wait for them."""

_OBJECT = {
    "type": "object",
    "description": "A report in its JSON form, as a client makes it.",
    "required": ["dpsketch", "spec", "id"],
    "properties": {
        "dpsketch": {"type": "integer", "description": "The version of the form."},
        "spec": {"type": "string", "pattern": "^[0-9a-f]{16}$", "description": "The fingerprint of the spec."},
        "id": {"type": "string", "pattern": "^[0-9a-f]{32}$", "description": "128 random bits, drawn for this report."},
    },
}
_BINARY = {"schema": {"type": "string", "format": "binary"}}
REPORTS_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"oneOf": [_OBJECT, {"type": "array", "items": _OBJECT}]}},
            "application/x-ndjson": {"schema": {"type": "string"}},
            "application/octet-stream": _BINARY,
            "application/vnd.apache.arrow.stream": _BINARY,
        },
    }
}


class Runner(Protocol):
    """What does long work in a thread."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]:
        """Do the work and return its result."""


@dataclass(frozen=True, slots=True)
class Sorted:
    """A request's reports: those that have the form of the spec as compact bytes, and how many have not."""

    records: bytes
    malformed: int = 0
    other_spec: int = 0

    def number(self, size: int) -> int:
        """Return how many reports the request brought, good or bad; ``size`` is that of one."""
        return len(self.records) // size + self.malformed + self.other_spec


async def sort_body(form: Form, kind: str, body: bytes, most: int, run: Runner) -> Sorted:
    """Take a body apart by its media type; large ones in a thread."""
    match kind:
        case "application/json" | "":
            work = _from_json
        case "application/x-ndjson":
            work = _from_lines
        case "application/octet-stream":
            work = _from_bytes
        case "application/vnd.apache.arrow.stream":
            work = _from_arrow
        case _:
            raise Refused(
                415,
                "unsupported_media_type",
                "Reports are application/json, application/x-ndjson, application/octet-stream (compact) or "
                "application/vnd.apache.arrow.stream.",
            )
    if len(body) < LARGE:
        return work(form, body, most)
    return await run(lambda: work(form, body, most))


def _from_json(form: Form, body: bytes, most: int) -> Sorted:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return Sorted(b"", malformed=1)
    return _from_messages(form, value if isinstance(value, list) else [value], most)


def _from_lines(form: Form, body: bytes, most: int) -> Sorted:
    _check_number(body.count(b"\n"), most)
    return _from_messages(form, [line for line in body.decode("utf-8", "replace").split("\n") if line.strip()], most)


def _from_messages(form: Form, messages: list[Any], most: int) -> Sorted:
    _check_number(len(messages), most)
    found = [form.record(message) for message in messages]
    records = [each for each in found if isinstance(each, bytes)]
    other = found.count("other_spec")
    return Sorted(b"".join(records), len(found) - len(records) - other, other)


def _from_bytes(form: Form, body: bytes, most: int) -> Sorted:
    _check_number(len(body) // form.size, most)
    return _compact(form, form.split(body))


def _from_arrow(form: Form, body: bytes, most: int) -> Sorted:
    parsed = form.from_stream(body)
    _check_number(len(parsed.columns["id"]), most)
    return _compact(form, parsed)


def _compact(form: Form, parsed: ParsedMessages) -> Sorted:
    return Sorted(form.to_bytes(parsed.columns), parsed.malformed, parsed.other_spec)


def _check_number(number: int, most: int) -> None:
    if number > most:
        more = "" if most > 1 else " without a token"
        raise Refused(413, "too_many", f"A request brings at most {most} reports{more}; send them in several.")
