"""Every address of the service, asked over HTTP of a real process."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import local
from serving import PROTOCOL, Server, dpsketch, make_token, new_collection, new_token, objects

KEYS = ["/a", "/b", "/c"]
SECRET_KEY = "/very-secret-page"


@dataclass
class Service:
    server: Server
    store: str
    folder: Path
    tokens: dict[str, str]
    release: dict[str, str]

    def client(self, scope: str | None) -> httpx.Client:
        return self.server.client(None if scope is None else self.tokens[scope])


def make_releases(folder: Path) -> dict[str, Path]:
    unit, spend = dps.per_record(), {"epsilon": 1.0, "delta": 1e-6}
    histogram = dps.Histogram(unit=unit)
    histogram.update([*KEYS, "/once"], counts=[3000, 2000, 1000, 1])
    baskets = dps.Histogram(unit=dps.per_user(max_keys=60))
    baskets.update(list(range(60)) * 100, users=np.arange(100).repeat(60))
    counts = dps.CountSketch(rows=5, width=256, unit=unit)
    counts.update(KEYS, counts=[3000, 2000, 1000])
    numbers = dps.CountSketch(rows=5, width=256, unit=unit, key_type="int")
    numbers.update([7, 8], counts=[3000, 2000])
    heavy = dps.HeavyHitters(rows=5, width=256, key_bits=16, unit=unit)
    heavy.update([1, 2], counts=[5000, 4000])
    sparse = dps.SparseHistogram(unit=unit, domain=2**20)
    sparse.update([5, 6], counts=[900, 800])
    moment = dps.MomentSketch(p=0.5, size=50, unit=unit)
    moment.update(KEYS, counts=[300, 200, 100])
    distinct = dps.DistinctSketch(unit=unit)
    distinct.update(np.arange(1000))
    ranges = dps.RangeSketch(bits=8, unit=unit)
    ranges.update(np.arange(200).repeat(50))
    plane = dps.DensitySketch(
        kernel=dps.kernels.Euclidean(dim=2, bandwidth=1.0), rows=50, unit=unit, bounds=[(0, 4), (0, 4)]
    )
    plane.update(np.full((2000, 2), 2.0))
    line = dps.DensitySketch(kernel=dps.kernels.Euclidean(dim=1, bandwidth=1.0), rows=50, unit=unit, bounds=[(0, 4)])
    line.update(np.full((2000, 1), 2.0))
    visits = {"page": ["/a", "/b"] * 300, "seconds": [2.0, 3.0] * 300}
    table = dps.Table(by="page", columns=[dps.count(), dps.quantiles("seconds", [0.5], bounds=(0, 8))])
    table.update(pa.table(visits))
    made = {
        "table": table.release(**spend),
        "histogram": histogram.release(**spend),
        "baskets": baskets.release(**spend),
        "names": baskets.release(**spend, names_only=True),
        "counts": counts.release(**spend),
        "numbers": numbers.release(**spend),
        "heavy": heavy.release(**spend),
        "sparse": sparse.release(epsilon=1.0, delta=0),
        "moment": moment.release(**spend),
        "distinct": distinct.release(epsilon=1.0, delta=0),
        "ranges": ranges.release(**spend),
        "plane": plane.release(**spend),
        "line": line.release(**spend),
    }
    paths = {name: folder / f"{name}.dps" for name in made}
    for name, release in made.items():
        release.save(paths[name])
    return paths


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    store = f"sqlite:///{folder / 'service.db'}"
    mounted = folder / "mounted"
    mounted.mkdir()
    paths = make_releases(mounted)
    (mounted / "broken.dps").write_bytes(paths["counts"].read_bytes()[:-5])
    ledger = dps.Ledger(f"sqlite:///{folder / 'ledger.db'}")
    ledger.create("web", epsilon=2.0, delta=1e-6, unit=dps.per_record())
    tokens = {scope: new_token(store, scope) for scope in ("collect", "read", "admin")}
    server = Server(
        folder, ["--store", store, "--mount", str(mounted), "--ledger", f"sqlite:///{folder / 'ledger.db'}"]
    )
    server.start()
    try:
        listed = server.client(tokens["read"]).get("/v1/releases").json()["releases"]
        yield Service(server, store, folder, tokens, {each["name"]: each["id"] for each in listed})
    finally:
        assert server.stop() == 0


def code_of(answer: httpx.Response) -> str:
    assert set(answer.json()) == {"error"}
    assert set(answer.json()["error"]) == {"code", "message"}
    return str(answer.json()["error"]["code"])


def test_health_readiness_metrics_and_the_description_need_no_token(service: Service) -> None:
    client = service.client(None)
    assert client.get("/health").json() == {"status": "up"}
    assert client.get("/ready").json() == {"status": "ready"}
    metrics = client.get("/metrics")
    assert "dpsketch_requests_total" in metrics.text
    assert metrics.headers["content-type"].startswith("text/plain")
    described = client.get("/openapi.json").json()
    assert described["info"]["version"] == dps.__version__
    assert client.get("/docs").status_code == 404
    assert client.get("/client.js").text == (Path(local.__file__).parent / "client.js").read_text()
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [(None, []), ("collect", ["collect"]), ("read", ["read"]), ("admin", ["collect", "read", "admin"])],
)
def test_a_token_allows_what_its_scope_says(service: Service, scope: str | None, allowed: list[str]) -> None:
    client = service.client(scope)
    assert client.get("/v1/session").json() == {"scopes": allowed, "version": dps.__version__}
    refused = 401 if scope is None else 403
    collection = new_collection(service.client("admin"))
    octets = {"Content-Type": "application/octet-stream"}
    asked = {
        "read": [
            client.get("/v1/releases"),
            client.get("/v1/ledger"),
            client.get(f"/v1/collections/{collection}/export"),
            client.get(f"/v1/releases/{service.release['counts']}/estimate?key=/a"),
        ],
        "collect": [client.post(f"/v1/collections/{collection}/reports", json=objects(1)[0])],
        "admin": [
            client.post("/v1/releases?name=x", content=b"", headers=octets),
            client.delete("/v1/releases/none"),
            client.post(f"/v1/collections/{collection}/close"),
            client.post("/v1/collections", json={"name": "x", "spec": {}}),
        ],
    }
    for needed, answers in asked.items():
        for answer in answers:
            assert (answer.status_code in (401, 403)) == (needed not in allowed), answer.request.url
            if needed not in allowed:
                assert answer.status_code == refused
                assert code_of(answer) == ("unauthorized" if scope is None else "forbidden")
    either = client.get("/v1/collections")
    assert (either.status_code == 200) == (scope is not None)


def test_an_unknown_or_revoked_token_is_nobody(service: Service) -> None:
    for header in ("Bearer nonsense", "Basic abc", "Bearer", "bearer " + "x" * 5000):
        answer = httpx.get(f"{service.server.url}/v1/releases", headers={"Authorization": header})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    made = make_token(service.store, "read", "temp")
    client = service.server.client(made["token"])
    wait_for(lambda: client.get("/v1/releases").status_code == 200)
    assert made["id"] in dpsketch("serve", "--store", service.store, "token", "list")
    dpsketch("serve", "--store", service.store, "token", "revoke", made["id"])
    wait_for(lambda: client.get("/v1/releases").status_code == 401)
    with sqlite3.connect(service.folder / "service.db") as database:
        kept = database.execute("SELECT * FROM dpsketch_token").fetchall()
    database.close()
    assert len(kept) == 3
    for token in service.tokens.values():
        assert token not in str(kept)


def wait_for(condition: Any, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def test_the_list_of_releases(service: Service) -> None:
    listed = {each["name"]: each for each in service.client("read").get("/v1/releases").json()["releases"]}
    names = {"counts", "numbers", "heavy", "sparse", "moment", "distinct", "ranges", "plane", "line", "table"}
    assert set(listed) == names | {"histogram", "baskets", "names"}
    questions = {name: each["questions"] for name, each in listed.items()}
    assert questions["counts"] == questions["heavy"] == ["estimate", "top", "decode"]
    assert questions["sparse"] == questions["histogram"] == ["estimate", "top"]
    assert questions["names"] == []
    assert questions["moment"] == questions["distinct"] == ["statement"]
    assert questions["ranges"] == ["range"]
    assert questions["plane"] == ["density"]
    assert questions["table"] == ["estimate", "table"]
    assert listed["counts"]["needs_candidates"]
    assert not listed["heavy"]["needs_candidates"]
    assert "is right at most" in listed["counts"]["guarantee"]["words"]


def test_a_release_is_described(service: Service) -> None:
    client = service.client("read")
    whole = client.get(f"/v1/releases/{service.release['plane']}").json()
    assert (whole["dimension"], whole["bounds"], whole["key_type"]) == (2, [[0, 4], [0, 4]], None)
    whole = client.get(f"/v1/releases/{service.release['numbers']}").json()
    assert (whole["dimension"], whole["key_type"], whole["spec"]["rows"]) == (None, "int", 5)
    shown = json.loads(dpsketch("inspect", service.folder / "mounted" / "numbers.dps", "--json"))
    assert {**shown, "file": None} == {**whole["facts"], "file": None}
    assert client.get("/v1/releases/0000").status_code == 404


def test_a_question_brings_the_type_of_its_keys_where_the_release_has_none(service: Service) -> None:
    client, path = service.client("read"), f"/v1/releases/{service.release['counts']}"
    assert client.get(path).json()["key_type"] is None
    for asked, expected in (
        ({"keys": ["/a"]}, "/a"),
        ({"keys": [7]}, 7),
        ({"keys": ["7"]}, "7"),
        ({"keys": ["7"], "key_type": "int"}, 7),
        ({"keys": [7], "key_type": "text"}, "7"),
    ):
        assert client.post(f"{path}/estimate", json=asked).json()["estimates"][0]["key"] == expected
    assert client.get(f"{path}/estimate?key=7&key_type=int").json()["estimates"][0]["key"] == 7
    wrong = client.post(f"/v1/releases/{service.release['numbers']}/estimate", json={"keys": ["7"], "key_type": "text"})
    assert wrong.status_code == 422


def test_answers_and_releases_say_what_they_count(service: Service) -> None:
    client, path = service.client("read"), f"/v1/releases/{service.release['counts']}"
    assert client.get(path).json()["counts"] == "records"
    assert client.post(f"{path}/estimate", json={"keys": ["/a"]}).json()["counts"] == "records"


def test_a_histogram_names_its_keys_and_says_what_it_counted(service: Service) -> None:
    client = service.client("read")
    path, baskets, names = (f"/v1/releases/{service.release[name]}" for name in ("histogram", "baskets", "names"))
    assert [each["key"] for each in client.get(f"{path}/top?n=2").json()["estimates"]] == ["/a", "/b"]
    one, once = client.post(f"{path}/estimate", json={"keys": ["/a", "/once"]}).json()["estimates"]
    assert abs(one["value"] - 3000) < 40
    assert once["value"] == 0
    whole = client.get(path).json()
    assert (whole["needs_candidates"], whole["facts"]["keys"], whole["facts"]["threshold"]) == (False, 3, 15)
    said = "users, clipped: at most 30 published keys counted each (weight at most 1 on each)"
    assert client.get(baskets).json()["counts"] == said
    assert client.get(f"{baskets}/top?n=1").json()["counts"] == said
    assert set(client.get(names).json()["facts"]["names"]) <= set(range(60))
    assert client.get(f"{names}/top?n=1").status_code == 422


def test_estimates_are_those_of_the_library(service: Service) -> None:
    client = service.client("read")
    release = dps.load(service.folder / "mounted" / "counts.dps")
    expected = release.estimate(KEYS, confidence=0.9).to_json()
    address = f"/v1/releases/{service.release['counts']}/estimate"
    got = client.get(address, params={"key": KEYS, "confidence": 0.9}).json()
    assert got == client.post(address, json={"keys": KEYS, "confidence": 0.9}).json()
    assert got["estimates"] == expected
    assert got["confidence"] == 0.9
    assert got["guarantee"] == json.loads(json.dumps(release.guarantee.to_json()))
    median = client.post(address, json={"keys": KEYS, "estimator": "median"}).json()["estimates"]
    assert median == release.estimate(KEYS, estimator="median").to_json()
    numbers = f"/v1/releases/{service.release['numbers']}/estimate"
    assert client.get(numbers, params={"key": "7"}).json() == client.post(numbers, json={"keys": [7]}).json()
    assert client.get(numbers, params={"key": "seven"}).status_code == 422


def test_top_decode_statements_and_ranges(service: Service) -> None:
    client = service.client("read")
    counts, heavy = (f"/v1/releases/{service.release[name]}" for name in ("counts", "heavy"))
    best = client.post(f"{counts}/top", json={"n": 2, "candidates": KEYS}).json()
    assert [each["key"] for each in best["estimates"]] == ["/a", "/b"]
    assert best["joint"]
    assert client.get(f"{counts}/top").status_code == 422
    assert [each["key"] for each in client.get(f"{heavy}/top?n=2").json()["estimates"]] == [1, 2]
    decoded = client.post(f"{counts}/decode", json={"keys": KEYS}).json()["estimates"]
    assert abs(decoded[0]["value"] - 3000) < 300
    assert client.post(f"/v1/releases/{service.release['sparse']}/decode", json={"keys": [5]}).status_code == 422
    for name in ("moment", "distinct"):
        stated = client.get(f"/v1/releases/{service.release[name]}/estimate").json()["estimates"]
        assert len(stated) == 1
        assert stated[0]["low"] < stated[0]["value"] < stated[0]["high"]
    ranges = f"/v1/releases/{service.release['ranges']}/estimate"
    whole, median = client.get(ranges, params={"key": ["0:255", "50%"]}).json()["estimates"]
    assert abs(whole["value"] - 10_000) < 500
    assert abs(median["value"] - 100) < 20
    for bad in ("0", "x:y", "nan%", "1e400%", "300:100"):
        assert client.get(ranges, params={"key": bad}).status_code == 422, bad


def test_densities_and_their_pictures(service: Service) -> None:
    client = service.client("read")
    plane, line = (f"/v1/releases/{service.release[name]}" for name in ("plane", "line"))
    there, away = client.post(f"{plane}/density", json={"points": [[2, 2], [0, 0]]}).json()["densities"]
    assert there["low"] > away["high"]
    grid = client.get(f"{plane}/grid?size=8").json()
    release = dps.load(service.folder / "mounted" / "plane.dps").grid(size=(8, 8))
    assert grid["bounds"] == [[0, 4], [0, 4]]
    assert np.allclose(grid["values"], release.value)
    curve = client.get(f"{line}/grid?size=9").json()
    assert len(curve["x"]) == len(curve["value"]) == len(curve["low"]) == len(curve["high"]) == 9
    assert client.post(f"{plane}/density", json={"points": [[2]]}).status_code == 422
    outside = client.post(f"{plane}/density", json={"points": [[2, 2], [2, 4.5]]})
    assert outside.status_code == 422
    assert "outside the sketch's bounds" in outside.text
    assert client.get(f"/v1/releases/{service.release['counts']}/grid").status_code == 422


def test_a_table_is_asked_for_its_rows(service: Service) -> None:
    client, address = service.client("read"), f"/v1/releases/{service.release['table']}"
    release = dps.load(service.folder / "mounted" / "table.dps")
    assert isinstance(release, dps.PrivateTable)
    found = client.get(f"{address}/table?confidence=0.9&sort=count&descending=true&limit=1&offset=1").json()
    assert (found["by"], found["columns"], found["total"]) == (["page"], release.columns, 2)
    expected = sorted(release.to_json(confidence=0.9), key=lambda row: -row["count"])[1:]
    assert [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]] == expected
    assert found["others"]["count_low"] < found["others"]["count"] < found["others"]["count_high"]
    assert found["others"]["quantile_seconds_0.5"] is None  # drawn for listed groups only
    assert found["guarantee"] == json.loads(json.dumps(release.guarantee.to_json()))
    rolled = client.post(f"{address}/table", json={"by": []}).json()
    assert "quantile_seconds_0.5" not in {*rolled["columns"], *rolled["others"]}
    assert [dict(zip(rolled["columns"], row, strict=True)) for row in rolled["rows"]] == release.rollup().to_json()
    as_csv = client.post(f"{address}/table", json={"search": "A", "format": "csv"})
    assert as_csv.headers["content-type"] == "text/csv; charset=utf-8"
    assert as_csv.text == "".join(str(release.to_csv()).splitlines(keepends=True)[:2])
    assert client.get(f"{address}/estimate?key=/a").json()["estimates"][0]["key"] == ["/a", "count"]


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("table?by=country", "names group columns, each once"),
        ("table?by=page&by=page", "names group columns, each once"),
        ("table?sort=country", "sort names a column of the rows"),
        ("table?limit=10001", "query.limit"),
        ("table?offset=-1", "query.offset"),
        ("estimate", "name at least one key"),
        ("estimate?key=country", "not listed in this table"),
    ],
)
def test_a_table_refuses_in_words(service: Service, question: str, words: str) -> None:
    refused = service.client("read").get(f"/v1/releases/{service.release['table']}/{question}")
    assert (refused.status_code, code_of(refused)) == (422, "invalid_input")
    assert words in refused.text
    assert "country" not in refused.text
    elsewhere = service.client("read").get(f"/v1/releases/{service.release['counts']}/table")
    assert "not a table" in elsewhere.text


def test_upload_and_delete(service: Service) -> None:
    client = service.client("admin")
    octets = {"Content-Type": "application/octet-stream"}
    sketch = dps.CountSketch(rows=3, width=64, unit=dps.per_record())
    sketch.update([SECRET_KEY])
    sensitive = client.post("/v1/releases?name=s", content=sketch.to_sensitive_bytes(), headers=octets)
    assert (sensitive.status_code, code_of(sensitive)) == (422, "sensitive_data")
    path = service.folder / "up.dps"
    sketch.release(epsilon=1.0, delta=1e-6).save(path)
    content = path.read_bytes()
    flipped = content[:-20] + bytes([content[-20] ^ 1]) + content[-19:]
    for broken in (flipped, content[:100], b"", b"x" * 1000):
        answer = client.post("/v1/releases?name=b", content=broken, headers=octets)
        assert (answer.status_code, code_of(answer)) == (422, "file_refused")
    assert client.post("/v1/releases?name=b", json={}).status_code == 415
    assert client.post("/v1/releases", content=content, headers=octets).status_code == 422
    added = client.post("/v1/releases", params={"name": "mine"}, content=content, headers=octets)
    assert added.status_code == 201
    identifier = added.json()["id"]
    again = client.post("/v1/releases", params={"name": "mine too"}, content=content, headers=octets)
    assert again.json() == {**added.json(), "name": "mine too"}
    assert service.client("read").get(f"/v1/releases/{identifier}").json()["name"] == "mine too"
    assert client.delete(f"/v1/releases/{identifier}").status_code == 204
    assert client.get(f"/v1/releases/{identifier}").status_code == 404
    assert code_of(client.delete(f"/v1/releases/{service.release['counts']}")) == "mounted"


def test_the_ledger_is_shown(service: Service) -> None:
    (budget,) = service.client("read").get("/v1/ledger").json()["datasets"]
    assert (budget["dataset"], budget["epsilon"], budget["spent_epsilon"], budget["releases"]) == ("web", 2.0, 0, 0)
    assert budget["unit"]["words"].startswith("each record")


def test_a_collection_from_start_to_end(service: Service) -> None:
    admin, read, collect = (service.client(scope) for scope in ("admin", "read", "collect"))
    identifier = new_collection(admin)
    address = f"/v1/collections/{identifier}"
    assert read.get(f"{address}/estimate?key=apple").status_code == 422  # no reports yet
    shown = collect.get(address).json()
    protocol = local.protocol_from_json(shown["spec"])
    assert (shown["reports"], shown["closed"], shown["spec_fingerprint"]) == (0, False, protocol.fingerprint)
    reports = objects(1500) + objects(500, "pear")
    assert collect.post(f"{address}/reports", json=reports).json() == {
        "accepted": 2000, "repeated": 0, "malformed": 0, "other_spec": 0
    }  # fmt: skip
    collector = PROTOCOL.collector()
    collector.receive(reports)
    expected = collector.estimate(["apple", "pear"]).to_json()
    got = read.post(f"{address}/estimate", json={"keys": ["apple", "pear"]}).json()
    assert got["estimates"] == expected
    assert got["reports"] == 2000
    best = read.get(f"{address}/top?n=1").json()
    assert best["joint"]
    assert [each["key"] for each in best["estimates"]] == ["apple"]
    assert read.post(f"{address}/top", json={"n": 1, "candidates": ["pear"]}).json()["estimates"][0]["key"] == "pear"
    history = read.get(f"{address}/history").json()
    assert history["points"][-1]["reports"] == 2000
    widths = {point["reports"]: point["width"] for point in history["predicted"]}
    assert widths[64] > 1.9 * widths[256]
    path = service.folder / "export.dps"
    path.write_bytes(read.get(f"{address}/export").content)
    exported = local.load(path)
    assert exported.users == 2000
    assert exported.estimate(["apple", "pear"]).to_json() == expected
    assert admin.post(f"{address}/close").json()["closed"]
    late = collect.post(f"{address}/reports", json=objects(1)[0])
    assert (late.status_code, code_of(late)) == (409, "closed")
    assert read.get(f"{address}/counters").json()["accepted"] == 2000


def test_a_stream_tells_what_there_is_and_what_comes(service: Service) -> None:
    admin, read = service.client("admin"), service.client("read")
    address = f"/v1/collections/{new_collection(admin)}"
    with read.stream("GET", f"{address}/stream") as stream:
        assert stream.headers["content-type"] == "application/x-ndjson"
        lines = stream.iter_lines()
        first = json.loads(next(lines))
        assert (first["collection"]["reports"], first["shares"]) == (0, None)
        assert admin.post(f"{address}/reports", json=objects(200)).status_code == 202
        second = json.loads(next(lines))
    assert second["collection"] == admin.get(address).json()
    assert second["counters"] == admin.get(f"{address}/counters").json()
    assert second["history"] == admin.get(f"{address}/history").json()
    assert second["shares"] == admin.get(f"{address}/top").json()
    assert service.client("collect").get(f"{address}/stream").status_code == 403


def test_what_is_not_private_is_not_collected(service: Service) -> None:
    spec = local.PrivSketchAsPublished(epsilon=1.0, rows=4, width=16).to_json()
    answer = service.client("admin").post("/v1/collections", json={"name": "x", "spec": spec})
    assert answer.status_code == 422
    assert "not private" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[]",
        "{}",
        '{"keys": "a"}',
        '{"keys": [1.5]}',
        '{"keys": [true]}',
        '{"keys": [null]}',
        '{"keys": ["\\ud800"]}',
        '{"secret-field": 1}',
        '{"keys": ["a"], "confidence": 1}',
        '{"keys": ["a"], "estimator": "best"}',
    ],
)
def test_a_bad_question_is_refused_without_being_repeated(service: Service, body: str) -> None:
    address = f"/v1/releases/{service.release['counts']}/estimate"
    answer = service.client("read").post(address, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert code_of(answer) == "invalid_input"
    assert "secret-field" not in answer.text
    assert "ud800" not in answer.text


def test_the_log_has_no_keys_reports_addresses_or_queries(service: Service) -> None:
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
    for hidden in (
        SECRET_KEY,
        "Secret name",
        reports[0]["id"],
        "127.0.0.1",
        "key=",
        identifier,
        *service.tokens.values(),
    ):
        assert hidden not in text, hidden
    kept = b"".join(path.read_bytes() for path in service.folder.glob("service.db*"))
    assert bytes.fromhex(reports[0]["id"]) in kept
    for hidden in ("127.0.0.1", "httpx", "User-Agent", *service.tokens.values()):
        assert hidden.encode() not in kept, hidden
    assert all(line["level"] in ("info", "warning") for line in service.server.lines())
    assert any(line["event"] == "mounted file refused" for line in service.server.lines())


def test_one_process_serves_a_store(service: Service) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "dpsketch", "serve", "--port", "0", "--store", service.store],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert second.returncode == 1
    assert "another process serves this store" in second.stderr
    assert second.stdout == ""


def test_limits_and_public_access(tmp_path: Path) -> None:
    """Small limits, everyone may read and report, and telemetry that the environment asks for stays off."""
    store = str(tmp_path / "limits.db")
    admin = new_token(store, "admin")
    spy = socket.create_server(("127.0.0.1", 0))
    spy.settimeout(0.2)
    limits = ["--max-json", "4096", "--public-batch", "10", "--timeout", "1"]
    rates = ["--address-rate", "5", "--spec-rate", "15"]
    telemetry = {
        "FASTAPI_OTEL_AUTO_CONFIGURE": "true",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{spy.getsockname()[1]}",
    }
    options = ["--store", store, "--public-read", "--public-collect", "--allow-origin", "https://shop.example"]
    server = Server(tmp_path, [*options, *limits, *rates], telemetry).start()
    try:
        client = server.client()
        identifier = new_collection(server.client(admin))
        address = f"/v1/collections/{identifier}/reports"
        assert client.get("/v1/session").json()["scopes"] == ["collect", "read"]
        assert client.post("/v1/collections", json={"name": "x", "spec": {}}).status_code == 401
        large = client.post(address, json=objects(80))
        assert (large.status_code, code_of(large)) == (413, "too_large")

        def in_pieces() -> Iterator[bytes]:
            for _ in range(3):
                yield b" " * 3000

        pieces = client.post(address, content=in_pieces(), headers={"Content-Type": "application/json"})
        assert (pieces.status_code, code_of(pieces)) == (413, "too_large")
        many = client.post(address, json=objects(11))
        assert (many.status_code, code_of(many)) == (413, "too_many")
        slow = half_a_request(server.url, address)
        assert b" 408 " in slow.splitlines()[0]
        time.sleep(1.1)
        origin = client.post(address, json=objects(1)[0], headers={"Origin": "https://shop.example"})
        assert origin.headers["access-control-allow-origin"] == "https://shop.example"
        other = client.post(address, json=objects(1)[0], headers={"Origin": "https://elsewhere.example"})
        assert "access-control-allow-origin" not in other.headers
        statuses = [client.post(address, json=objects(1)[0]) for _ in range(15)]
        assert {each.status_code for each in statuses} == {202, 429}
        limited = next(each for each in statuses if each.status_code == 429)
        assert int(limited.headers["retry-after"]) >= 1
        assert 429 in {client.get("/v1/collections").status_code for _ in range(40)}
        counters = server.client(admin).get(f"/v1/collections/{identifier}/counters").json()
        assert counters["oversized"] == 3
        with pytest.raises(TimeoutError):
            spy.accept()
    finally:
        spy.close()
        assert server.stop() == 0


def half_a_request(url: str, address: str) -> bytes:
    """Announce a body, send a part of it, and wait."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        kind = "Content-Type: application/json\r\nContent-Length: 100"
        head = f"POST {address} HTTP/1.1\r\nHost: localhost\r\n{kind}\r\n\r\n"
        connection.sendall(head.encode() + b"{")
        return connection.recv(4096)


def test_the_demo_says_no_to_the_world() -> None:
    refused = subprocess.run(
        [sys.executable, "-m", "dpsketch", "serve", "--demo", "--host", "0.0.0.0"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "--demo" in refused.stderr
