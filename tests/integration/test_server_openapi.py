"""The service is what its OpenAPI description says: schemathesis asks every operation, rightly and wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import dpsketch as dps
from serving import Server, new_collection, new_token, objects


@dataclass
class Described:
    server: Server
    token: str
    known: dict[str, list[str]]


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Described]:
    folder = tmp_path_factory.mktemp("openapi")
    sketch = dps.CountSketch(rows=5, width=64, unit=dps.per_record())
    sketch.update(["a", "b"], counts=[500, 400])
    sketch.release(epsilon=1.0, delta=1e-6).save(folder / "counts.dps")
    ranges = dps.RangeSketch(bits=8, unit=dps.per_record())
    ranges.update(list(range(200)))
    ranges.release(epsilon=1.0, delta=1e-6).save(folder / "ranges.dps")
    plane = dps.DensitySketch(
        kernel=dps.kernels.Euclidean(dim=2, bandwidth=1.0), rows=20, unit=dps.per_record(), bounds=[(0, 4), (0, 4)]
    )
    plane.update([[1.0, 2.0]] * 100)
    plane.release(epsilon=1.0, delta=1e-6).save(folder / "plane.dps")
    table = dps.Table(by=["page", "day"])
    table.update(pa.table({"page": ["a", "b"] * 200, "day": [1, 1, 2, 2] * 100}))
    table.release(epsilon=1.0, delta=1e-6).save(folder / "table.dps")
    store = str(folder / "service.db")
    token = new_token(store, "admin")
    wide = ["--read-rate", "100000", "--spec-rate", "100000", "--compute-rate", "1000"]
    server = Server(folder, ["--store", store, "--mount", str(folder), *wide]).start()
    try:
        client = server.client(token)
        collection = new_collection(client)
        client.post(f"/v1/collections/{collection}/reports", json=objects(100))
        releases = [each["id"] for each in client.get("/v1/releases").json()["releases"]]
        yield Described(server, token, {"releases": releases, "collections": [collection]})
    finally:
        assert server.stop() == 0


def ask_everything(described: Described, examples: int) -> int:
    """Ask each operation, with the addresses of things that exist as well as of others; return how many there are."""
    import schemathesis
    from schemathesis import checks

    schema = schemathesis.openapi.from_url(f"{described.server.url}/openapi.json")
    headers = {"Authorization": f"Bearer {described.token}"}
    # Whether data is good depends on the release or the spec it is for, which a schema of the whole cannot say.
    excluded = [checks.positive_data_acceptance, checks.negative_data_rejection]
    asked = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        asked += 1
        if operation.path.endswith("/stream"):
            continue  # it does not end by itself; test_server_endpoints.py follows one
        turn = 0

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            nonlocal turn
            turn += 1
            kind = case.path.split("/")[2] if case.path.startswith("/v1/") else ""
            if "{identifier}" in case.path and case.method != "DELETE" and turn % 4:
                known = described.known[kind]
                # A closed collection would take no more.
                if not case.path.endswith("/close"):
                    case.path_parameters["identifier"] = known[turn % len(known)]
            case.call_and_validate(base_url=described.server.url, headers=headers, excluded_checks=excluded, timeout=30)

        ask()
    return asked


def test_every_operation_is_as_described(described: Described) -> None:
    assert ask_everything(described, examples=8) >= 25
    assert not [line for line in described.server.lines() if line["level"] == "error"]


@pytest.mark.full
def test_every_operation_is_as_described_at_length(described: Described) -> None:
    assert ask_everything(described, examples=150) >= 25
    assert not [line for line in described.server.lines() if line["level"] == "error"]


def test_the_description_is_complete(described: Described) -> None:
    """Every operation has words, a token where it needs one, and a shape for its failures."""
    client = described.server.client(described.token)
    paths = client.get("/openapi.json").json()["paths"]
    for path, methods in paths.items():
        for method, operation in methods.items():
            assert operation["description"], (method, path)
            assert {"4XX", "5XX"} <= set(operation["responses"]), (method, path)
            assert ("security" in operation) == path.startswith("/v1/")
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "serve.md").read_text(encoding="utf-8")
    for path, methods in paths.items():
        for method in methods:
            assert f"| `{method.upper()}` | `{path.replace('{identifier}', '{id}')}` |" in page, (method, path)
