"""How the service says no: one shape for every error, and never a key, a report or an address in it."""

from __future__ import annotations

from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from dpsketch.errors import DpsketchError, FileRefused, LedgerError, SensitiveData, SpecMismatch
from dpsketch.server.database import StorageFailed

__all__ = ["HANDLERS", "Refused", "error_response"]

_CODES = {
    400: ("bad_request", "The request could not be read."),
    404: ("not_found", "There is nothing under this address."),
    405: ("method_not_allowed", "This address does not take this method."),
}


class Refused(HTTPException):
    """A request that is turned down, with a code for programs and a sentence for people."""

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(status, message, headers)
        self.code = code


def error_response(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return an error in the service's one shape."""
    return JSONResponse({"error": {"code": code, "message": message}}, status, headers)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if isinstance(error, Refused):
        request.scope["dpsketch.reason"] = error.code
        return error_response(error.status_code, error.code, str(error.detail), dict(error.headers or {}))
    code, words = _CODES.get(error.status_code, ("refused", "The request was refused."))
    return error_response(error.status_code, code, words, dict(error.headers or {}))


async def _ours(_: Request, error: Exception) -> JSONResponse:
    """Answer an error of the library; none of them quotes what was asked or sent."""
    match error:
        case StorageFailed():
            return error_response(503, "storage_failed", str(error), {"Retry-After": "1"})
        case LedgerError():
            return error_response(503, "ledger_failed", "The ledger could not be read.")
        case SensitiveData():
            return error_response(422, "sensitive_data", str(error))
        case FileRefused():
            return error_response(422, "file_refused", str(error))
        case SpecMismatch():
            return error_response(422, "other_spec", str(error))
        case _:
            return error_response(422, "invalid_input", str(error))


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    """Say where a request is not as described, without repeating what was sent."""
    assert isinstance(error, RequestValidationError)
    first: dict[str, Any] = dict(error.errors()[0])
    if first["type"] == "extra_forbidden":
        return error_response(422, "invalid_input", "The request has a field that is not known here.")
    place = ".".join(str(part) for part in first["loc"][:2])
    if first["type"] in ("json_invalid", "missing") or place == "body":
        return error_response(422, "invalid_input", f"{place.partition('.')[0]}: {_problem(first)}")
    return error_response(422, "invalid_input", f"{place}: {_problem(first)}")


def _problem(error: dict[str, Any]) -> str:
    match error["type"]:
        case "json_invalid":
            return "is not JSON."
        case "missing":
            return f"{error['loc'][-1]} is missing."
        case kind:
            return f"is not what was expected ({kind.replace('_', ' ')})."


HANDLERS: dict[int | type[Exception], Any] = {
    HTTPException: _refused,
    DpsketchError: _ours,
    RequestValidationError: _invalid,
}
