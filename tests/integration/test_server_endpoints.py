"""Every address of the service, asked over HTTP of a real process."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks

import dpsketch as dps
from dpsketch import files, local
from dpsketch.server import telemetry
from dpsketch.server.settings import Limits, Settings
from dpsketch.sketches.continual.folder import StreamFolder
from serving import PROTOCOL, Server, dpsketch, inside, new_collection, new_token, objects, wait_for

KEYS = ["/a", "/b", "/c"]
SECRET_KEY = "/very-secret-page"
DAYS = 9
OCTETS = {"Content-Type": "application/octet-stream"}
JSON = {"Content-Type": "application/json"}
ROOT = Path(__file__).parents[2]


@dataclass
class Service:
    server: Server
    mounted: Path
    tokens: dict[str, str]
    release: dict[str, str]

    def client(self, scope: str | None) -> httpx.Client:
        return self.server.client(None if scope is None else self.tokens[scope])

    def load(self, name: str) -> Any:
        return dps.load(self.mounted / f"{name}.dps")


def make_releases(folder: Path) -> None:
    unit, plane = dps.per_record(), dps.kernels.Euclidean(dim=2, bandwidth=1.0)
    shape: dict[str, Any] = {"rows": 5, "width": 256, "unit": unit}
    table = dps.Table(by="page", columns=[dps.count(), dps.quantiles("seconds", [0.5], bounds=(0, 8))])
    pages = pa.table({"page": ["/a", "/b"] * 300, "seconds": [2.0, 3.0] * 300})
    filled: dict[str, tuple[Any, Any, list[int] | None]] = {
        "histogram": (dps.Histogram(unit=unit), [*KEYS, "/once"], [3000, 2000, 1000, 1]),
        "counts": (dps.CountSketch(**shape), KEYS, [3000, 2000, 1000]),
        "numbers": (dps.CountSketch(**shape, key_type="int"), [7, 8], [3000, 2000]),
        "heavy": (dps.HeavyHitters(**shape, key_bits=16), [1, 2], [5000, 4000]),
        "moment": (dps.MomentSketch(p=0.5, size=50, unit=unit), KEYS, [300, 200, 100]),
        "ranges": (dps.RangeSketch(bits=8, unit=unit), np.arange(200).repeat(50), None),
        "plane": (
            dps.DensitySketch(kernel=plane, rows=50, unit=unit, bounds=[(0, 4), (0, 4)]), np.full((2000, 2), 2.0), None
        ),
        "table": (table, pages, None),
    }  # fmt: skip
    for name, (sketch, records, counts) in filled.items():
        sketch.update(records, **({} if counts is None else {"counts": counts}))
        sketch.release(epsilon=1.0, delta=1e-6).save(folder / f"{name}.dps")
    drinks = stream_of_drinks()
    for day in range(DAYS):
        drinks.day(["tea"] * (200 + 100 * day) + ["milk"] * 50)
    drinks.series().save(folder / "drinks.dps")
    (folder / "broken.dps").write_bytes((folder / "counts.dps").read_bytes()[:-5])


def stream_of_drinks() -> dps.ContinualSketch:
    counted = dps.Histogram(unit=dps.per_record(), key_type="text")
    budget = {"epsilon": 1.0, "delta": 1e-6}
    return dps.ContinualSketch(counted, keys=["tea", "milk"], days=30, first_day="2026-11-01", **budget)


@pytest.fixture(scope="module")
def service(serve: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory) -> Service:
    folder = tmp_path_factory.mktemp("mounted")
    make_releases(folder)
    ledger = f"sqlite:///{tmp_path_factory.mktemp('ledger') / 'ledger.db'}"
    dps.Ledger(ledger).create("web", epsilon=2.0, delta=1e-6, unit=dps.per_record())
    rates = ["--read-rate", "100000", "--spec-rate", "100000", "--compute-rate", "1000"]
    server = serve("--mount", str(folder), "--ledger", ledger, *rates)
    store = server.options[1]
    tokens = {
        "admin": server.environment["token"], "read": new_token(store, "read"), "collect": new_token(store, "collect")
    }  # fmt: skip
    wait_for(lambda: server.client(tokens["read"]).get("/v1/releases").status_code == 200)
    listed = server.client(tokens["read"]).get("/v1/releases").json()["releases"]
    return Service(server, folder, tokens, {each["name"]: each["id"] for each in listed})


def code_of(answer: httpx.Response) -> str:
    assert set(answer.json()) == {"error"}
    assert set(answer.json()["error"]) == {"code", "message"}
    return str(answer.json()["error"]["code"])


def test_health_readiness_metrics_and_the_description_need_no_token(service: Service) -> None:
    """Every metric of the dashboard in deploy/ exists."""
    client = service.client(None)
    assert client.get("/health").json() == {"status": "up"}
    assert client.get("/ready").json() == {"status": "ready"}
    shown = {line.partition("{")[0].partition(" ")[0] for line in client.get("/metrics").text.splitlines()}
    board = json.loads((ROOT / "deploy" / "grafana.json").read_text())
    queries = " ".join(each["expr"] for panel in board["panels"] for each in panel["targets"])
    # The others are counted first when they happen.
    later = {f"dpsketch_{name}_total" for name in ("answers", "reports", "answer_cpu_seconds", "refusals")}
    assert set(re.findall(r"dpsketch_\w+", queries)) - shown <= later
    assert client.get("/client.js").text == (Path(local.__file__).parent / "client.js").read_text()
    assert "default-src 'self'" in client.get("/").headers["content-security-policy"]


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [(None, []), ("collect", ["collect"]), ("read", ["read"]), ("admin", ["collect", "read", "admin"])],
)
def test_a_token_allows_what_its_scope_says(service: Service, scope: str | None, allowed: list[str]) -> None:
    client = service.client(scope)
    assert client.get("/v1/session").json() == {"scopes": allowed, "version": dps.__version__}
    collection = f"/v1/collections/{new_collection(service.client('admin'))}"
    read = ("/v1/releases", "/v1/ledger", f"{collection}/export", f"{collection}/estimate?key=apple")
    asked = {
        "read": [client.get(path) for path in read],
        "collect": [client.post(f"{collection}/reports", json=objects(1)[0])],
        "admin": [
            client.post("/v1/releases?name=x", content=b"", headers=OCTETS),
            client.delete("/v1/releases/none"),
            client.post(f"{collection}/close"),
            client.post("/v1/collections", json={"name": "x", "spec": {}}),
        ],
    }
    refused = (401, "unauthorized") if scope is None else (403, "forbidden")
    for needed, answers in asked.items():
        for answer in answers:
            assert (answer.status_code in (401, 403)) == (needed not in allowed), answer.request.url
            assert needed in allowed or (answer.status_code, code_of(answer)) == refused
    assert (client.get("/v1/collections").status_code == 200) == (scope is not None)


def test_an_unknown_or_revoked_token_is_nobody(service: Service) -> None:
    for header in ("Bearer nonsense", "Basic abc", "Bearer", "bearer " + "x" * 5000):
        answer = httpx.get(f"{service.server.url}/v1/releases", headers={"Authorization": header})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    token = ("serve", "--store", service.server.options[1], "token")
    made = json.loads(dpsketch(*token, "create", "--scope", "read", "--name", "temp", "--json"))
    client = service.server.client(made["token"])
    wait_for(lambda: client.get("/v1/releases").status_code == 200)
    assert made["id"] in dpsketch(*token, "list")
    dpsketch(*token, "revoke", made["id"])
    wait_for(lambda: client.get("/v1/releases").status_code == 401)
    with closing(sqlite3.connect(service.server.options[1])) as database:
        kept = str(database.execute("SELECT * FROM dpsketch_token").fetchall())
    assert [secret for secret in (made["token"], *service.tokens.values()) if secret in kept] == []


def test_releases_are_listed_found_by_words_and_described(service: Service) -> None:
    client = service.client("read")
    listed = {each["name"]: each for each in client.get("/v1/releases").json()["releases"]}
    assert {name: each["questions"] for name, each in listed.items()} == {
        "counts": ["estimate", "top", "decode"], "numbers": ["estimate", "top", "decode"],
        "heavy": ["estimate", "top", "decode"], "histogram": ["estimate", "top"], "moment": ["statement"],
        "ranges": ["range"], "plane": ["density"], "table": ["estimate", "table"],
        "drinks": ["curve", "change", "estimate", "top"],
    }  # fmt: skip
    assert (listed["counts"]["needs_candidates"], listed["heavy"]["needs_candidates"]) == (True, False)
    for question, names in (("?search=HISTO+gram", ["histogram"]), ("?name=plane", ["plane"]), ("?kind=sparse", [])):
        found = client.get(f"/v1/releases{question}").json()["releases"]
        assert [each["name"] for each in found] == names, question
    whole = client.get(f"/v1/releases/{service.release['plane']}").json()
    assert (whole["dimension"], whole["bounds"], whole["key_type"], whole["version"]) == (2, [[0, 4], [0, 4]], None, 1)
    whole = client.get(f"/v1/releases/{service.release['numbers']}").json()
    shown = json.loads(dpsketch("inspect", service.mounted / "numbers.dps", "--json"))
    assert {**shown, "file": None} == {**whole["facts"], "file": None}
    assert client.get("/v1/releases/0000").status_code == 404
    facts = {"days_published": DAYS, "first_day": "2026-11-01", "last_day": "2026-11-09", "of": "histogram"}
    assert client.get(f"/v1/releases/{service.release['drinks']}").json()["facts"].items() >= facts.items()
    (budget,) = client.get("/v1/ledger").json()["datasets"]
    assert (budget["dataset"], budget["epsilon"], budget["spent_epsilon"], budget["releases"]) == ("web", 2.0, 0, 0)


TEA = {"key": "tea"}
ANSWERS: list[tuple[str, str, Any, Callable[[Any], Any]]] = [
    ("counts", "estimate", {"keys": KEYS, "confidence": 0.9}, lambda one: one.estimate(KEYS, confidence=0.9)),
    ("counts", "decode", {"keys": KEYS}, lambda one: one.decode(KEYS)),
    ("counts", "top", {"n": 2, "candidates": KEYS}, lambda one: one.top(2, candidates=KEYS)),
    ("numbers", "estimate", {"keys": [7]}, lambda one: one.estimate([7])),
    ("heavy", "top", {"n": 2}, lambda one: one.top(2)),
    ("drinks", "curve", TEA | {"window": 7, "confidence": 0.9}, lambda one: one.curve("tea", window=7, confidence=0.9)),
    ("drinks", "curve", TEA | {"together": True}, lambda one: one.curve("tea", together=True)),
    ("drinks", "change", TEA | {"later": [8, 9], "earlier": [1, 2]}, lambda one: one.change("tea", (8, 9), (1, 2))),
    ("drinks", "estimate", {"keys": ["milk"], "first": 3, "last": 9}, lambda one: one.between(3, 9).estimate(["milk"])),
    ("drinks", "estimate", {"keys": ["tea"]}, lambda one: one.total().estimate(["tea"])),
]


@pytest.mark.parametrize(("release", "route", "asked", "expected"), ANSWERS)
def test_answers_are_those_of_the_library(
    service: Service, release: str, route: str, asked: Any, expected: Callable[[Any], Any]
) -> None:
    """With the release's guarantee, and asked in the address as well as in a body."""
    client, one = service.client("read"), service.load(release)
    address = f"/v1/releases/{service.release[release]}/{route}"
    found = client.post(address, json=asked).json()
    wanted = json.loads(json.dumps(expected(one).to_json()))
    assert len(found["estimates"]) == len(wanted)
    for each, other in zip(found["estimates"], wanted, strict=True):
        assert each["key"] == other["key"]
        assert [each[name] for name in ("value", "low", "high")] == pytest.approx(
            [other[name] for name in ("value", "low", "high")]
        )
    assert found["guarantee"] == json.loads(json.dumps(one.guarantee.to_json()))
    if route == "estimate":
        given = {"key" if name == "keys" else name: value for name, value in asked.items()}
        assert client.get(address, params=given).json() == found


def test_every_other_question_is_answered(service: Service) -> None:
    client = service.client("read")
    address = {name: f"/v1/releases/{identifier}" for name, identifier in service.release.items()}
    as_csv = client.get(f"{address['histogram']}/top?n=1&format=csv")
    assert as_csv.headers["content-type"] == "text/csv; charset=utf-8"
    assert as_csv.text.startswith("key,value,low,high\n/a,")
    (stated,) = client.get(f"{address['moment']}/estimate").json()["estimates"]
    assert stated["low"] < stated["value"] < stated["high"]
    whole, median = client.get(f"{address['ranges']}/estimate", params={"key": ["0:255", "50%"]}).json()["estimates"]
    assert abs(whole["value"] - 10_000) < 500
    assert abs(median["value"] - 100) < 20
    there, away = client.post(f"{address['plane']}/density", json={"points": [[2, 2], [0, 0]]}).json()["densities"]
    assert there["low"] > away["high"]
    grid = client.get(f"{address['plane']}/grid?size=8").json()
    assert np.allclose(grid["values"], service.load("plane").grid(size=(8, 8)).value)


def test_a_table_is_asked_for_its_rows(service: Service) -> None:
    client, release = service.client("read"), service.load("table")
    address = f"/v1/releases/{service.release['table']}/table"

    def rows(answer: Any) -> list[dict[str, Any]]:
        return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]

    found = client.get(f"{address}?confidence=0.9&sort=count&descending=true&limit=1&offset=1").json()
    assert (found["by"], found["columns"], found["total"]) == (["page"], release.columns, 2)
    assert rows(found) == sorted(release.to_json(confidence=0.9), key=lambda row: -row["count"])[1:]
    assert found["others"]["count_low"] < found["others"]["count"] < found["others"]["count_high"]
    assert found["others"]["quantile_seconds_0.5"] is None  # drawn for listed groups only
    assert rows(client.post(address, json={"by": []}).json()) == release.rollup().to_json()
    as_csv = client.post(address, json={"search": "A", "format": "csv"})
    assert as_csv.text == "".join(str(release.to_csv()).splitlines(keepends=True)[:2])


SENSELESS: list[tuple[str, str, Any, str]] = [
    ("table", "table", {"by": ["nowhere"]}, "names group columns, each once"),
    ("table", "table", {"sort": "nowhere"}, "sort names a column of the rows"),
    ("table", "table", {"limit": 10_001}, "limit"),
    ("table", "estimate", {"keys": ["nowhere"]}, "not listed in this table"),
    ("counts", "table", {}, "not a table"),
    ("counts", "top", {}, ""),
    ("histogram", "decode", {"keys": ["/a"]}, ""),
    ("numbers", "estimate", {"keys": ["seven"]}, ""),
    *(("ranges", "estimate", {"keys": [bad]}, "") for bad in ("0", "x:y", "nan%", "1e400%", "300:100")),
    *(("plane", "density", {"points": points}, "") for points in ([[2]], [[2, 2], [2, 4.5]])),
    ("drinks", "curve", {"key": "tea", "window": DAYS + 1}, ""),
    ("drinks", "curve", {"key": "nowhere"}, ""),
    ("drinks", "change", {"key": "tea", "later": [5, 3], "earlier": [1, 2]}, ""),
    ("drinks", "estimate", {"keys": ["tea"], "last": DAYS + 1}, ""),
    *(
        ("counts", "estimate", body, "")
        for body in ("{", "[]", "{}", '{"keys": [1.5]}', '{"keys": [null]}', '{"keys": ["\\ud800"]}', '{"nowhere": 1}')
    ),
    ("counts", "estimate", {"keys": ["/a"], "confidence": 1}, ""),
]


@pytest.mark.parametrize(("release", "route", "asked", "words"), SENSELESS)
def test_a_senseless_question_is_refused_and_not_repeated(
    service: Service, release: str, route: str, asked: Any, words: str
) -> None:
    body = asked if isinstance(asked, str) else json.dumps(asked)
    address = f"/v1/releases/{service.release[release]}/{route}"
    answer = service.client("read").post(address, content=body, headers=JSON)
    assert (answer.status_code, code_of(answer)) == (422, "invalid_input")
    assert words in answer.text
    assert not {"nowhere", "ud800", "seven"} & set(re.findall(r"\w+", answer.text))


def test_the_state_of_a_stream_is_never_mounted(service: Service, tmp_path: Path) -> None:
    StreamFolder(tmp_path / "state").begin(stream_of_drinks())
    options = ["--port", "0", f"--store={tmp_path / 'other.db'}", f"--mount={tmp_path / 'state'}"]
    command = [sys.executable, "-m", "dpsketch", "serve", *options]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert refused.returncode != 0
    assert "state of a stream, which is sensitive" in " ".join(refused.stderr.split())
    # A stream that is begun in a folder that is mounted already takes what lies there off the list.
    client = service.client("read")
    StreamFolder(service.mounted).token()
    wait_for(lambda: not client.get("/v1/releases").json()["releases"])
    for left in ("stream.begun", "stream.lock"):
        (service.mounted / left).unlink()
    wait_for(lambda: len(client.get("/v1/releases").json()["releases"]) == len(service.release))


def test_upload_and_delete(service: Service, tmp_path: Path) -> None:
    client = service.client("admin")
    sketch = dps.CountSketch(rows=3, width=64, unit=dps.per_record())
    sensitive = client.post("/v1/releases?name=s", content=sketch.to_sensitive_bytes(), headers=OCTETS)
    assert (sensitive.status_code, code_of(sensitive)) == (422, "sensitive_data")
    sketch.release(epsilon=1.0, delta=1e-6).save(tmp_path / "up.dps")
    content = (tmp_path / "up.dps").read_bytes()
    flipped = content[:-20] + bytes([content[-20] ^ 1]) + content[-19:]
    for broken in (flipped, content[:100], b"", b"x" * 1000):
        answer = client.post("/v1/releases?name=b", content=broken, headers=OCTETS)
        assert (answer.status_code, code_of(answer)) == (422, "file_refused")
    assert client.post("/v1/releases?name=b", json={}).status_code == 415
    assert client.post("/v1/releases", content=content, headers=OCTETS).status_code == 422
    name, other = f"mine {uuid.uuid4()}", f"mine too {uuid.uuid4()}"  # a second try finds no version of the first
    added = client.post("/v1/releases", params={"name": name}, content=content, headers=OCTETS)
    assert added.status_code == 201
    address = f"/v1/releases/{added.json()['id']}"
    again = client.post("/v1/releases", params={"name": other}, content=content, headers=OCTETS)
    assert again.json() == {**added.json(), "name": other}
    assert service.client("read").get(address).json()["name"] == other
    assert client.delete(address).status_code == 204
    assert client.get(address).status_code == 404
    assert code_of(client.delete(f"/v1/releases/{service.release['counts']}")) == "mounted"


def test_a_collection_from_start_to_end(service: Service) -> None:
    admin, read, collect = (service.client(scope) for scope in ("admin", "read", "collect"))
    address = f"/v1/collections/{new_collection(admin)}"
    assert read.get(f"{address}/estimate?key=apple").status_code == 422  # no reports yet
    shown = collect.get(address).json()
    protocol = local.protocol_from_json(shown["spec"])
    assert (shown["reports"], shown["closed"], shown["spec_fingerprint"]) == (0, False, protocol.fingerprint)
    reports = objects(1500) + objects(500, "pear")
    assert collect.post(f"{address}/reports", json=reports).json()["accepted"] == 2000
    collector = PROTOCOL.collector()
    collector.receive(reports)
    expected = collector.estimate(["apple", "pear"]).to_json()
    got = read.post(f"{address}/estimate", json={"keys": ["apple", "pear"]}).json()
    assert (got["estimates"], got["reports"]) == (expected, 2000)
    assert [each["key"] for each in read.get(f"{address}/top?n=1").json()["estimates"]] == ["apple"]
    history = read.get(f"{address}/history").json()
    assert history["points"][-1]["reports"] == 2000
    widths = {point["reports"]: point["width"] for point in history["predicted"]}
    assert widths[64] > 1.9 * widths[256]
    exported = files.decode(read.get(f"{address}/export").content, allow_sensitive=False)
    assert local.Collector.from_document(exported).estimate(["apple", "pear"]).to_json() == expected
    assert admin.post(f"{address}/close").json()["closed"]
    late = collect.post(f"{address}/reports", json=objects(1)[0])
    assert (late.status_code, code_of(late)) == (409, "closed")
    spec = local.PrivSketchAsPublished(epsilon=1.0, rows=4, width=16).to_json()
    assert "not private" in admin.post("/v1/collections", json={"name": "x", "spec": spec}).json()["error"]["message"]


def test_the_log_has_no_keys_reports_addresses_or_queries(service: Service) -> None:
    """Nor has the store more of a report than the report."""
    read, admin = service.client("read"), service.client("admin")
    identifier = new_collection(admin, name="Secret name", candidates=[SECRET_KEY])
    reports = objects(3, SECRET_KEY)
    for answer in (
        read.get(f"/v1/releases/{service.release['counts']}/estimate", params={"key": SECRET_KEY}),
        read.post(f"/v1/releases/{service.release['counts']}/top", json={"candidates": [SECRET_KEY]}),
        read.get(f"/v1/releases/{service.release['numbers']}/estimate", params={"key": SECRET_KEY}),
        read.get(f"/x{SECRET_KEY}"),
        admin.post(f"/v1/collections/{identifier}/reports", json=reports),
        admin.post(f"/v1/collections/{identifier}/reports", json={"bad": reports[0]["id"]}),
    ):
        assert "error" in answer.text or "estimates" in answer.text or "accepted" in answer.text
    wait_for(lambda: any(line.get("status") == 404 for line in service.server.lines()))
    text = service.server.log.read_text()
    assert "/v1/releases/{identifier}/estimate" in text
    told = (SECRET_KEY, "Secret name", reports[0]["id"], "127.0.0.1", "key=", identifier, *service.tokens.values())
    assert [hidden for hidden in told if hidden in text] == []
    kept = b"".join(path.read_bytes() for path in service.server.folder.glob("service.db*"))
    assert bytes.fromhex(reports[0]["id"]) in kept
    sent = ("127.0.0.1", "httpx", "User-Agent", *service.tokens.values())
    assert [hidden for hidden in sent if hidden.encode() in kept] == []
    assert all(line["level"] in ("info", "warning") for line in service.server.lines())
    assert any(line["event"] == "mounted file refused" for line in service.server.lines())


def test_what_is_too_large_is_refused_and_counted_and_pages_that_are_named_may_report(tmp_path: Path) -> None:
    store, site = str(tmp_path / "limits.db"), "https://shop.example"
    known = {"Authorization": f"Bearer {new_token(store, 'admin')}"}
    limits = Limits(max_json=4096, public_batch=10)
    settings = Settings(store, public=frozenset({"read", "collect"}), origins=(site,), limits=limits)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b" " * 3000

    async def work() -> None:
        async with inside(settings) as client:
            made = await client.post("/v1/collections", json={"name": "x", "spec": PROTOCOL.to_json()}, headers=known)
            collection = f"/v1/collections/{made.json()['id']}"
            address = f"{collection}/reports"
            whole = json.dumps(objects(80)).encode()
            for content, code in ((whole, "too_large"), (pieces(), "too_large"), (whole[:0], "malformed")):
                assert code_of(await client.post(address, content=content, headers=JSON)) == code
            assert code_of(await client.post(address, json=objects(11))) == "too_many"
            assert (await client.get(f"{collection}/counters")).json()["oversized"] == 3
            for origin, allowed in ((site, site), ("https://elsewhere.example", None)):
                answer = await client.post(address, json=objects(1)[0], headers={"Origin": origin})
                assert answer.headers.get("access-control-allow-origin") == allowed

    asyncio.run(work())


@pytest.mark.parametrize("examples", [4, pytest.param(150, marks=pytest.mark.full)])
def test_every_operation_is_as_described(service: Service, examples: int) -> None:
    """The description asks each operation by itself, of things that exist as well as of others."""
    schema = schemathesis.openapi.from_url(f"{service.server.url}/openapi.json")
    headers = {"Authorization": f"Bearer {service.tokens['admin']}"}
    known = {"releases": list(service.release.values()), "collections": [new_collection(service.client("admin"))]}
    # Whether data is good depends on the release or the spec it is for, which a schema of the whole cannot say.
    excluded = [checks.positive_data_acceptance, checks.negative_data_rejection]
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) >= 25
    for operation in operations:
        turn = 0

        @settings(
            max_examples=examples, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            nonlocal turn
            turn += 1
            # A closed collection would take no more.
            kept = "{identifier}" not in case.path or case.method == "DELETE" or case.path.endswith("/close")
            if not kept and turn % 4:
                things = known[case.path.split("/")[2]]
                case.path_parameters["identifier"] = things[turn % len(things)]
            case.call_and_validate(base_url=service.server.url, headers=headers, excluded_checks=excluded, timeout=30)

        if not operation.path.endswith("/stream"):  # it does not end by itself
            ask()
    assert [line for line in service.server.lines() if line["level"] == "error"] == []


def test_the_description_is_complete(service: Service) -> None:
    """Every operation has words, a token where it needs one, a shape for its failures, and a line in the how-to."""
    page = (ROOT / "docs" / "how-to" / "serve.md").read_text(encoding="utf-8")
    for path, methods in service.client(None).get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            assert operation["description"], (method, path)
            assert {"4XX", "5XX"} <= set(operation["responses"]), (method, path)
            assert ("security" in operation) == path.startswith("/v1/")
            assert f"| `{method.upper()}` | `{path.replace('{identifier}', '{id}')}` |" in page, (method, path)


def test_traces_are_off_unless_asked_for_and_have_nothing_of_what_was_asked(tmp_path: Path) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="the extra dpsketch[telemetry] is not installed")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    traced = "0af7651916cd43dd8448eb211c80319c"

    async def work() -> None:
        store = str(tmp_path / "traces.db")
        async with inside(Settings(store, public=frozenset({"read"}), client_header="X-Real-IP")) as client:
            await client.get("/health")
            assert exporter.get_finished_spans() == (), "it is off unless asked for"
            app = client._transport.app  # type: ignore[attr-defined]
            assert not any(app._telemetry.values()), "FastAPI's own would send what is asked"
            service = app.state.service
            service.traces = telemetry.Traces(provider)
            headers = {"X-Real-IP": "203.0.113.7", "traceparent": f"00-{traced}-b7ad6b7169203331-01"}
            await client.get("/v1/releases/an-id-of-its-own/estimate?key=a-key-of-its-own", headers=headers)
            await client.get("/v1/releases", headers={"Authorization": "Bearer dps_secret"})
            await client.request("BREW", "/nowhere/a-key-of-its-own")

    asyncio.run(work())
    spans = exporter.get_finished_spans()
    assert [(span.name, span.attributes["http.response.status_code"]) for span in spans] == [
        ("GET /v1/releases/{identifier}/estimate", 404), ("GET /v1/releases", 401), ("_OTHER other", 404),
    ]  # fmt: skip
    said = "".join(span.to_json() for span in spans)
    secrets = ("a-key-of-its-own", "an-id-of-its-own", "203.0.113.7", "dps_secret", traced)
    assert [secret for secret in secrets if secret in said] == []
    assert all(span.parent is None for span in spans)
