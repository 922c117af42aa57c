"""Questions that are not as described: they cost little to refuse, and their sender pays for reading them."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from dpsketch.server.models import AskKeys
from dpsketch.server.settings import Limits, Settings
from serving import inside

MANY = 5000


def asked_models() -> list[type[BaseModel]]:
    """Every model that a route reads a body as."""
    base = AskKeys.__mro__[2]
    found, waiting = [], [base]
    while waiting:
        each = waiting.pop()
        waiting += each.__subclasses__()
        found += [each] if each.model_fields else []
    return sorted(found, key=lambda each: each.__name__)


def test_a_wrong_question_makes_few_errors_however_long_it_is() -> None:
    """An error for each element of a list would take seconds, in which no report is stored."""
    assert len(asked_models()) > 5
    for model in asked_models():
        bodies: list[dict[str, Any]] = [{f"field {number}": 1 for number in range(MANY)}]
        bodies += [{name: wrong} for name in model.model_fields for wrong in ([{}] * MANY, [[{}] * MANY])]
        for body in bodies:
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
