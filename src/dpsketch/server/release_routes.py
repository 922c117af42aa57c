"""What can be asked of releases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from dpsketch.answers import answer, top
from dpsketch.answers import decode as decode_keys
from dpsketch.errors import InvalidInput
from dpsketch.results import Estimates
from dpsketch.server import models
from dpsketch.server.answers import PIECE, estimates_reply, file_response, finite, question, reply
from dpsketch.server.auth import Asked, Changing, Reading, Visitor, content_type
from dpsketch.server.refusals import Refused
from dpsketch.server.releases import Served
from dpsketch.server.tables import rows_reply

__all__ = ["router"]

router = APIRouter(prefix="/v1/releases", tags=["releases"], responses=models.FAILURES, route_class=Asked)

_OCTETS = "application/octet-stream"
_UPLOAD = {"requestBody": {"required": True, "content": {_OCTETS: {"schema": {"type": "string", "format": "binary"}}}}}


@router.get("", response_model=models.ReleaseList)
async def releases(
    visitor: Reading,
    search: Annotated[str, Query(max_length=200)] = "",
    name: Annotated[str | None, Query(max_length=200)] = None,
    kind: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """List the releases: all, or those in whose words all words of a search occur, or of one name or kind.

    They are sorted by name, and the versions of one name with the newest first.
    """
    releases = visitor.service.releases

    def work() -> Response:
        found = releases.views(search)
        return reply(
            {"releases": [each for each in found if name in (None, each["name"]) and kind in (None, each["kind"])]}
        )

    return await visitor.answer(question("releases", search, repr(name), repr(kind)), work, releases.changes)


@router.post("", response_model=models.ReleaseView, status_code=201, openapi_extra=_UPLOAD)
async def upload(request: Request, visitor: Changing, name: Annotated[models.Name, Query()]) -> Response:
    """Upload a release (.dps). What is sensitive, damaged or forged is refused."""
    if content_type(request) != _OCTETS:
        raise Refused(415, "unsupported_media_type", f"Send the file's bytes as {_OCTETS}.")
    content = await request.body()
    service = visitor.service
    added = await service.run(lambda: service.releases.add(content, name))
    return reply(service.releases.view(added), 201)


@router.get("/{identifier}", response_model=models.ReleaseWhole)
async def release(identifier: str, visitor: Reading) -> Response:
    """Describe a release: its spec, its guarantee and what else is known of it."""
    releases = visitor.service.releases
    served = releases.get(identifier)
    place = releases.place(served)

    def work() -> Response:
        return reply({**served.whole(), **place})

    return await visitor.answer(question("release", identifier, served.name, place), work)


@router.get(
    "/{identifier}/file",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def download(identifier: str, visitor: Reading) -> Response:
    """Return the release's file (.dps), byte for byte; the id is the beginning of its SHA-256."""
    service = visitor.service
    served = service.releases.get(identifier)
    headers = {"Content-Disposition": f'attachment; filename="{identifier}.dps"'}

    def work() -> Response:
        return file_response(service.releases.content(served), headers, large=PIECE)

    return await visitor.answer(question("file", identifier), work)


@router.delete("/{identifier}", status_code=204, response_class=Response)
async def delete(identifier: str, visitor: Changing) -> Response:
    """Forget an uploaded release."""
    service = visitor.service
    await service.run(lambda: service.releases.remove(identifier))
    return Response(status_code=204)


@router.post("/{identifier}/estimate", response_model=models.EstimatesAnswer, responses=models.TABLE)
async def estimate_many(identifier: str, asked: models.AskKeys, visitor: Reading) -> Response:
    """Ask about many keys; they do not appear in an address."""
    visitor.service.check_number(asked.keys)

    def found(release: Any) -> Estimates:
        return answer(release, list(asked.keys), asked.confidence, asked.estimator, asked.key_type)

    return await _answered("estimate", visitor, visitor.service.releases.get(identifier), asked, found)


@router.get("/{identifier}/estimate", response_model=models.EstimatesAnswer, responses=models.TABLE)
async def estimate(identifier: str, asked: models.KeysInAddress, visitor: Reading) -> Response:
    """Ask about keys; of ranges, low:high or 50%; of a moment or a distinct count, without keys."""
    return await estimate_many(identifier, asked, visitor)


async def _answered(
    what: str,
    visitor: Visitor,
    served: Served,
    asked: models.AskKeys | models.AskTop,
    found: Callable[[Any], Estimates],
    joint: bool = False,
) -> Response:
    """Answer with what is found in a release, within the days that were asked about."""

    def work() -> Response:
        told = found(served.within(asked.first, asked.last))
        return estimates_reply(told, served.release.guarantee, asked.format, joint=joint)

    return await visitor.answer(question(what, served.id, repr(asked)), work)


@router.post("/{identifier}/top", response_model=models.EstimatesAnswer, responses=models.TABLE)
async def top_of_candidates(identifier: str, asked: models.AskTop, visitor: Reading) -> Response:
    """List the most frequent of some candidates."""
    served = visitor.service.releases.get(identifier)
    if asked.candidates is None and served.needs_candidates:
        raise InvalidInput("this release knows counts, not keys: POST a list of candidates.")
    candidates: list[Any] | None = None if asked.candidates is None else list(asked.candidates)
    visitor.service.check_number(candidates or [])

    def found(release: Any) -> Estimates:
        return top(release, asked.n, candidates, asked.confidence, asked.key_type)

    return await _answered("top", visitor, served, asked, found, joint=True)


@router.get("/{identifier}/top", response_model=models.EstimatesAnswer, responses=models.TABLE)
async def top_keys(identifier: str, asked: models.TopInAddress, visitor: Reading) -> Response:
    """List the most frequent keys of a release that finds them by itself."""
    return await top_of_candidates(identifier, asked, visitor)


@router.post("/{identifier}/decode", response_model=models.EstimatesAnswer, responses=models.TABLE)
async def decode(identifier: str, asked: models.AskKeys, visitor: Reading) -> Response:
    """Estimate many candidate keys together, which is more accurate than one by one."""
    served = visitor.service.releases.get(identifier)
    if "decode" not in served.questions:
        raise InvalidInput("this release cannot be decoded; only counts can.")
    if not asked.keys or asked.estimator is not None:
        raise InvalidInput("decoding takes at least one key, and no estimator.")
    visitor.service.check_number(asked.keys)

    def found(release: Any) -> Estimates:
        return decode_keys(release, list(asked.keys), asked.confidence, asked.key_type)

    return await _answered("decode", visitor, served, asked, found)


@router.post("/{identifier}/density", response_model=models.DensityAnswer)
async def density(identifier: str, asked: models.AskDensity, visitor: Reading) -> Response:
    """Estimate the density at points."""
    release = _density(visitor.service.releases.get(identifier), asked.first, asked.last)
    visitor.service.check_number(asked.points)
    if any(len(point) != release.spec.dim for point in asked.points):
        raise InvalidInput(f"a point of this release has {release.spec.dim} coordinates.")

    def work() -> Response:
        found = release.density(asked.points, confidence=asked.confidence)
        sides = zip(found.value.tolist(), found.low.tolist(), found.high.tolist(), strict=True)
        return reply(
            {
                "densities": finite([{"value": value, "low": low, "high": high} for value, low, high in sides]),
                "confidence": asked.confidence,
                "guarantee": finite(release.guarantee.to_json()),
            }
        )

    return await visitor.answer(question("density", identifier, repr(asked)), work)


@router.get("/{identifier}/grid", response_model=models.GridAnswer)
async def grid(
    identifier: str,
    visitor: Reading,
    size: Annotated[int, Query(ge=2, le=256)] = 64,
    confidence: Annotated[models.Confidence, Query()] = 0.95,
    first: Annotated[models.Day, Query()] = None,
    last: Annotated[models.Day, Query()] = None,
) -> Response:
    """Return a density for a picture: a grid of two columns (values[i][j] at row i from below), a curve of one."""
    release = _density(visitor.service.releases.get(identifier), first, last)
    name = question("grid", identifier, size, confidence, first, last)
    return await visitor.answer(name, lambda: reply(_picture(release, size, confidence)))


def _picture(release: Any, size: int, confidence: float) -> dict[str, Any]:
    shown = {"confidence": confidence, "guarantee": finite(release.guarantee.to_json())}
    if release.spec.dim == 1:
        curve = release.curve(size=size, confidence=confidence)
        shown |= {
            "names": None if curve.name is None else [curve.name],
            "bounds": [[float(curve.x[0]), float(curve.x[-1])]],
            "x": curve.x.tolist(),
            **{side: finite(getattr(curve, side).tolist()) for side in ("value", "low", "high")},
        }
    elif release.spec.dim == 2:
        found = release.grid(size=(size, size), confidence=confidence)
        shown |= {
            "names": None if found.names is None else list(found.names),
            "bounds": [list(pair) for pair in found.bounds],
            "values": finite(found.value.tolist()),
            "low": finite(found.low.tolist()),
            "high": finite(found.high.tolist()),
        }
    else:
        raise InvalidInput("a density of more than two columns has no picture.")
    return shown


def _density(served: Served, first: int | None, last: int | None) -> Any:
    if "density" not in served.questions:
        raise InvalidInput("this release has no density.")
    return served.within(first, last)


@router.post("/{identifier}/table", response_model=models.TableAnswer, responses=models.TABLE)
async def table_searched(identifier: str, asked: models.AskTable, visitor: Reading) -> Response:
    """Return rows of a table, or of groups that are added up: sorted, and those with some words; not in an address."""
    served = visitor.service.releases.get(identifier)
    return await visitor.answer(question("table", identifier, repr(asked)), lambda: rows_reply(served.release, asked))


@router.get("/{identifier}/table", response_model=models.TableAnswer, responses=models.TABLE)
async def table(identifier: str, asked: Annotated[models.AskTable, Query()], visitor: Reading) -> Response:
    """Return rows of a table, or of groups that are added up, a page at a time."""
    return await table_searched(identifier, asked, visitor)


@router.post("/{identifier}/curve", response_model=models.EstimatesAnswer, responses=models.TABLE)
async def curve_unnamed(identifier: str, asked: models.AskCurve, visitor: Reading) -> Response:
    """Follow one question over the published days of a stream; it does not appear in an address."""
    series = _series(visitor.service.releases.get(identifier))

    def work() -> Response:
        key = series.question(asked.key, asked.key_type)
        found = series.curve(key, window=asked.window, confidence=asked.confidence, together=asked.together)
        return estimates_reply(found, series.guarantee, asked.format, joint=asked.together)

    return await visitor.answer(question("curve", identifier, repr(asked)), work)


@router.get("/{identifier}/curve", response_model=models.EstimatesAnswer, responses=models.TABLE)
async def curve(
    identifier: str,
    visitor: Reading,
    key: Annotated[str, Query(max_length=1000)],
    window: Annotated[int | None, Query(ge=1)] = None,
    confidence: Annotated[models.Confidence, Query()] = 0.95,
    together: Annotated[bool, Query()] = False,
    key_type: Annotated[models.AskedType, Query()] = None,
    format: Annotated[models.Form, Query()] = "json",
) -> Response:
    """Follow one question over the published days of a stream: running totals, or sums of so many days."""
    asked = models.AskCurve(
        key=key, window=window, confidence=confidence, together=together, key_type=key_type, format=format
    )
    return await curve_unnamed(identifier, asked, visitor)


@router.post("/{identifier}/change", response_model=models.EstimatesAnswer, responses=models.TABLE)
async def change(identifier: str, asked: models.AskChange, visitor: Reading) -> Response:
    """Say how far an answer changed from one window of days to another, with the noise that both share taken off."""
    series = _series(visitor.service.releases.get(identifier))

    def work() -> Response:
        key = series.question(asked.key, asked.key_type)
        found = series.change(key, asked.later, asked.earlier, confidence=asked.confidence)
        return estimates_reply(found, series.guarantee, asked.format, joint=False)

    return await visitor.answer(question("change", identifier, repr(asked)), work)


def _series(served: Served) -> Any:
    if "curve" not in served.questions:
        raise InvalidInput("this release is not the published days of a stream, and has no curve.")
    return served.release
