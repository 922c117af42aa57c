"""What goes in and out, for the OpenAPI description and for checking questions."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from fastapi import Depends, Query
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StrictInt, StrictStr, model_validator
from pydantic_core import PydanticCustomError

from dpsketch.server.auth import Period

__all__ = [
    "FAILURES", "TABLE", "AskChange", "AskCurve", "AskDensity", "AskKeys", "AskTable", "AskTop", "AskedType",
    "CollectionList", "CollectionStarted", "CollectionView", "Counters", "Day", "DensityAnswer", "EstimatesAnswer",
    "Failure", "Form", "GridAnswer", "History", "KeysInAddress", "LedgerView", "NewCollection", "ReceivedReports",
    "ReleaseList", "ReleaseView", "ReleaseWhole", "SessionView", "SharesAnswer", "Status", "TableAnswer",
    "TopInAddress",
]  # fmt: skip

MOST_KEYS = 100_000

Key = StrictStr | StrictInt
# Validation stops at the first wrong element. An error for each would block the event loop for long.
Keys = Annotated[list[Key], Field(fail_fast=True)]
Points = Annotated[list[Annotated[list[float], Field(fail_fast=True)]], Field(fail_fast=True)]
Confidence = Annotated[float, Field(gt=0, lt=1, description="Coverage of the intervals.")]
AskedType = Annotated[
    Literal["int", "text"] | None,
    Field(description='What the keys are, where the release does not say; else 5 is an integer and "5" is text.'),
]
Day = Annotated[
    int | None, Field(ge=1, description="A day of a stream, counted from 1: the first or last that counts.")
]
Form = Annotated[Literal["json", "csv"], Field(description="JSON with the guarantee, or the estimates as CSV.")]
_PLAIN = r"^[^\x00-\x1f\x7f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]+$"
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=_PLAIN)]
"""A name without control characters; those that turn the direction of writing would make it show as another one."""


class _Asked(BaseModel):
    # Not "forbid", which makes an error for each unknown field: here all of them make one.
    model_config = ConfigDict(extra="allow", json_schema_extra={"additionalProperties": False})

    @model_validator(mode="after")
    def _knows_all_fields(self) -> Self:
        if self.model_extra:
            raise PydanticCustomError("extra_forbidden", "There is an unknown field.")
        return self


class _AskedOfDays(_Asked):
    """What is asked of published days may name those that it is about; without, of all of them."""

    first: Day = None
    last: Day = None


class AskKeys(_AskedOfDays):
    """Keys to look up."""

    keys: Keys = Field(default=[], max_length=MOST_KEYS)
    confidence: Confidence = 0.95
    estimator: StrictStr | None = None
    key_type: AskedType = None
    format: Form = "json"


class AskTop(_AskedOfDays):
    """How many keys to list, and from which candidates."""

    n: StrictInt = Field(default=20, ge=1, le=10_000)
    candidates: Keys | None = Field(default=None, max_length=MOST_KEYS)
    confidence: Confidence = 0.95
    key_type: AskedType = None
    format: Form = "json"


async def _keys_in_address(
    key: Annotated[list[str] | None, Query(max_length=1000)] = None,
    confidence: Annotated[Confidence, Query()] = 0.95,
    key_type: Annotated[AskedType, Query()] = None,
    format: Annotated[Form, Query()] = "json",
    first: Annotated[Day, Query()] = None,
    last: Annotated[Day, Query()] = None,
) -> AskKeys:
    keys: list[Key] = list(key or [])
    return AskKeys(keys=keys, confidence=confidence, key_type=key_type, format=format, first=first, last=last)


KeysInAddress = Annotated[AskKeys, Depends(_keys_in_address)]
"""Keys to look up, as an address asks."""


async def _top_in_address(
    n: Annotated[int, Query(ge=1, le=10_000)] = 20,
    confidence: Annotated[Confidence, Query()] = 0.95,
    format: Annotated[Form, Query()] = "json",
    first: Annotated[Day, Query()] = None,
    last: Annotated[Day, Query()] = None,
) -> AskTop:
    return AskTop(n=n, confidence=confidence, format=format, first=first, last=last)


TopInAddress = Annotated[AskTop, Depends(_top_in_address)]
"""How many keys to list, as an address asks; candidates do not appear in one."""


class AskDensity(_AskedOfDays):
    """Points to look up, each a list of coordinates."""

    points: Points = Field(max_length=MOST_KEYS, min_length=1)
    confidence: Confidence = 0.95


class AskCurve(_Asked):
    """A question to follow over time: a key; of ranges low:high or 50%; of a density a point as in 1.5,2."""

    key: Key
    window: StrictInt | None = Field(default=None, ge=1, description="Sums of so many days; without, running totals.")
    confidence: Confidence = 0.95
    together: bool = Field(default=False, description="Whether the intervals are to hold for the whole curve at once.")
    key_type: AskedType = None
    format: Form = "json"


class AskChange(_Asked):
    """A question to two windows of days, each with its first and last day."""

    key: Key
    later: tuple[StrictInt, StrictInt]
    earlier: tuple[StrictInt, StrictInt]
    confidence: Confidence = 0.95
    key_type: AskedType = None
    format: Form = "json"


class AskTable(_Asked):
    """Which rows of a table, and in which order."""

    by: Annotated[list[StrictStr], Field(fail_fast=True)] | None = Field(
        default=None, max_length=100, description="The group columns to keep; groups that agree in them are added up."
    )
    search: str = Field(default="", max_length=200, description="Only groups in which all of these words occur.")
    sort: StrictStr | None = Field(default=None, max_length=1000, description="The column to sort by.")
    descending: bool = False
    offset: int = Field(default=0, ge=0, le=2**53)
    limit: int = Field(
        default=100, ge=1, le=10_000, description="Maximum number of rows; fewer where there are many columns."
    )
    confidence: Confidence = 0.95
    format: Form = "json"


class NewCollection(_Asked):
    """A collection to start: a name, the spec of a local protocol, and perhaps the keys people choose from."""

    name: Name
    spec: dict[str, Any]
    candidates: Keys | None = Field(default=None, max_length=10_000, min_length=1)
    max_reports: StrictInt | None = Field(default=None, ge=1, le=2**53)
    closes_at: AwareDatetime | None = None
    deletes_at: AwareDatetime | None = None
    tickets: Period | None = Field(default=None, description="Ask for a ticket; each may report so often.")


class Failure(BaseModel):
    """Why a request was refused."""

    class What(BaseModel):
        """A code for programs and a sentence for people."""

        code: str
        message: str

    error: What


FAILURES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Failure, "description": "The request was refused."},
    "5XX": {"model": Failure, "description": "The service could not answer now."},
}
"""How every route can fail, for its description."""

TABLE: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}
"""That a route answers with CSV where it is asked to."""


class UnitView(BaseModel):
    """Whose presence is hidden."""

    level: str
    max_keys: int
    max_weight: float
    neighbours: str
    words: str


class GuaranteeView(BaseModel):
    """What was promised; ``words`` is the sentence a person reads."""

    epsilon: float | None
    delta: float
    rho: float | None
    unit: dict[str, Any]
    costs: list[dict[str, Any]]
    mechanism: str
    caveat: str | None
    holds: bool
    words: str
    counted_again: str | None = None


class EstimateView(BaseModel):
    """One number with its interval."""

    key: str | int | list[str]
    value: float | None
    low: float | None
    high: float | None


class EstimatesAnswer(BaseModel):
    """Estimates in the order asked, and the guarantee they come with.

    ``joint``: the intervals hold all at once. ``counts`` says what was counted; the intervals are for that, not for
    what was cut before. ``note``: what to know beside, such as why nothing was found.
    """

    estimates: list[EstimateView]
    confidence: float
    counts: str
    joint: bool
    note: str
    guarantee: GuaranteeView


class TableAnswer(BaseModel):
    """Rows of a table, each with the entries of ``columns``: of groups, then each number with its two ends.

    ``by``: the group columns among them. ``total``: the number of rows on all pages. ``others``: the numbers of all
    groups that are not listed, by column. ``note``: what to know of rows that were added up.
    """

    by: list[str]
    columns: list[str]
    rows: list[list[str | bool | int | float | None]]
    total: int
    others: dict[str, float | None]
    confidence: float
    note: str
    guarantee: GuaranteeView


class SharesAnswer(EstimatesAnswer):
    """Shares of people, from so many reports.

    ``implausible``: honest reports do not lead to such shares; ``note`` says so. ``implausible_keys`` are the places,
    from 0, of the estimates that lie outside of what is possible by themselves.
    """

    reports: int
    implausible: bool
    implausible_keys: list[int]


class DensityView(BaseModel):
    """A density with its interval."""

    value: float | None
    low: float | None
    high: float | None


class DensityAnswer(BaseModel):
    """Densities in the order asked."""

    densities: list[DensityView]
    confidence: float
    guarantee: GuaranteeView


class GridAnswer(BaseModel):
    """A density in pictures: a grid of two columns, or a curve of one."""

    guarantee: GuaranteeView
    confidence: float
    names: list[str] | None
    bounds: list[tuple[float, float]]
    values: list[list[float | None]] | None = None
    low: list[Any] | None = None
    high: list[Any] | None = None
    x: list[float] | None = None
    value: list[float | None] | None = None


class ReleaseView(BaseModel):
    """A release in the list; those of one name are its versions, counted from 1 in the order they were added."""

    id: str
    name: str
    kind: str
    answers: str
    counts: str
    guarantee: GuaranteeView
    questions: list[str]
    needs_candidates: bool
    mounted: bool
    added: str | None
    version: int
    versions: int


class ReleaseWhole(ReleaseView):
    """A release with its spec and what else is known of it."""

    spec: dict[str, Any]
    facts: dict[str, Any]
    key_type: str | None
    examples: list[str]
    dimension: int | None
    bounds: list[tuple[float, float]] | None


class ReleaseList(BaseModel):
    """All releases."""

    releases: list[ReleaseView]


class CollectionView(BaseModel):
    """A collection: its spec is what a device needs."""

    id: str
    name: str
    spec: dict[str, Any]
    spec_fingerprint: str
    guarantee: GuaranteeView
    candidates: list[str | int] | None
    reports: int
    closed: bool
    max_reports: int | None
    closes_at: str | None
    deletes_at: str | None
    tickets: Period | None


class CollectionStarted(CollectionView):
    """A collection that was just started; the key of its tickets is not shown again."""

    ticket_key: str | None


class CollectionList(BaseModel):
    """All collections."""

    collections: list[CollectionView]


class ReceivedReports(BaseModel):
    """What became of the reports of a request."""

    accepted: int
    repeated: int
    malformed: int
    other_spec: int


class Counters(ReceivedReports):
    """What became of all reports of a collection; ``oversized`` counts requests."""

    oversized: int


class Point(BaseModel):
    """The width of an interval at a number of reports."""

    reports: int
    width: float


class History(BaseModel):
    """Interval widths as they were, and as the protocol predicts them."""

    points: list[Point]
    predicted: list[Point]


class BudgetView(BaseModel):
    """What a dataset may spend, and what it has spent."""

    dataset: str
    unit: UnitView
    epsilon: float | None
    delta: float
    spent_epsilon: float | None
    rho: float | None
    spent_rho: float | None
    share: float | None
    releases: int
    words: str


class LedgerView(BaseModel):
    """All budgets."""

    datasets: list[BudgetView]


class SessionView(BaseModel):
    """What the caller may do."""

    scopes: list[str]
    version: str


class Status(BaseModel):
    """That something is as it should be."""

    status: str
