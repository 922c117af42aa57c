"""JSON that goes out: whole, finite and readable."""

from __future__ import annotations

import json
import math
from typing import Any, Literal

from starlette.responses import Response

from dpsketch.privacy import Guarantee
from dpsketch.results import Estimates

__all__ = ["CSV", "estimates_reply", "finite", "reply"]

CSV = "text/csv"


def reply(value: Any, status: int = 200) -> Response:
    """Return a JSON response; keys that are not UTF-8 have their odd bytes escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_escaped)
    return Response(text.encode(), status, media_type="application/json")


def _escaped(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    raise TypeError(f"{type(value).__name__} is not JSON.")


def finite(value: Any) -> Any:
    """Replace numbers that JSON does not have by null, in lists and dictionaries too."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case list() | tuple():
            return [finite(part) for part in value]
        case dict():
            return {key: finite(part) for key, part in value.items()}
        case _:
            return value


def estimates_reply(
    estimates: Estimates, guarantee: Guarantee, form: Literal["json", "csv"] = "json", *, joint: bool, **more: Any
) -> Response:
    """Return estimates with their intervals and the guarantee; as CSV, the estimates alone."""
    if form == "csv":
        # A table has no room for what is counted, nor for a warning.
        counted = (estimates.counts or guarantee.counts).encode("ascii", "replace").decode()
        headers = {"Content-Disposition": 'attachment; filename="estimates.csv"', "Dpsketch-Counts": counted}
        if more.get("implausible"):
            headers["Dpsketch-Implausible"] = "true"
        return Response(estimates.to_csv().encode("utf-8", "backslashreplace"), media_type=CSV, headers=headers)
    return reply(
        {
            "estimates": finite(estimates.to_json()),
            "confidence": estimates.confidence,
            "counts": estimates.counts or guarantee.counts,
            "joint": joint,
            "note": estimates.note,
            **more,
            "guarantee": finite(guarantee.to_json()),
        }
    )
