"""Questions that are not as described: they cost little to refuse, and their sender pays for reading them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError

from dpsketch import local
from dpsketch.server.models import AskKeys
from dpsketch.server.settings import Limits, Settings
from serving import inside

MANY = 5000
PROTOCOLS = [
    local.SubsetHashing(epsilon=2.0, max_items=1, key_type="text"),
    local.SubsetDirect(epsilon=2.0, max_items=1, domain=("a", "b", "c")),
]


def asked_models() -> list[type[BaseModel]]:
    """Every model that a route reads a body as."""
    base = AskKeys.__mro__[2]
    found, waiting = [], [base]
    while waiting:
        each = waiting.pop()
        waiting += each.__subclasses__()
        found += [each] if each.model_fields else []
    return sorted(found, key=lambda each: each.__name__)


def lists_of(model: type[BaseModel]) -> list[str]:
    def is_list(kind: Any) -> bool:
        return "list[" in str(kind) or any(is_list(each) for each in get_args(kind))

    return [name for name, field in model.model_fields.items() if is_list(field.annotation)]


def bodies(model: type[BaseModel]) -> Iterator[dict[str, Any]]:
    yield {f"field {number}": 1 for number in range(MANY)}
    for name in lists_of(model):
        yield {name: [{}] * MANY}
        yield {name: [[{}] * MANY]}


def test_a_wrong_question_makes_few_errors_however_long_it_is() -> None:
    """An error for each element of a list would take seconds, in which no report is stored."""
    found = {each.__name__: lists_of(each) for each in asked_models()}
    assert found["AskKeys"] == ["keys"]
    assert found["AskDensity"] == ["points"]
    assert found["NewCollection"] == found["AskTop"] == ["candidates"]
    for model in asked_models():
        for body in bodies(model):
            with pytest.raises(ValidationError) as raised:
                model.model_validate(body)
            assert raised.value.error_count() < 20


def codes(settings: Settings, address: str, body: bytes, times: int) -> list[int]:
    async def work() -> list[int]:
        headers = {"Content-Type": "application/json"}
        async with inside(settings) as client:
            return [(await client.post(address, content=body, headers=headers)).status_code for _ in range(times)]

    return asyncio.run(work())


@pytest.mark.parametrize("body", [b'{"keys":["a"]}', b"{"])
def test_reading_a_question_is_charged_as_computing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    """Reading each question is said to take three seconds of the processor; five are to be had at once."""
    spent = itertools.count(0, 3)
    monkeypatch.setattr("dpsketch.server.answers.time.thread_time", lambda: float(next(spent)))
    settings = Settings(str(tmp_path / "x.db"), public=frozenset({"read"}), limits=Limits(compute_rate=0.001))
    wanted = 404 if b'"a"' in body else 422
    assert codes(settings, "/v1/releases/x/estimate", body, 3) == [wanted, wanted, 429]
