"""Every address of the service, asked over HTTP of a real process."""

from __future__ import annotations

import json
import re
import socket
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
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
from dpsketch import local
from dpsketch.sketches.continual.folder import StreamFolder
from serving import PROTOCOL, Server, dpsketch, new_collection, new_token, objects, wait_for

KEYS = ["/a", "/b", "/c"]
SECRET_KEY = "/very-secret-page"
DAYS = 9


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
    counts = dps.CountSketch(rows=5, width=256, unit=unit)
    counts.update(KEYS, counts=[3000, 2000, 1000])
    numbers = dps.CountSketch(rows=5, width=256, unit=unit, key_type="int")
    numbers.update([7, 8], counts=[3000, 2000])
    heavy = dps.HeavyHitters(rows=5, width=256, key_bits=16, unit=unit)
    heavy.update([1, 2], counts=[5000, 4000])
    moment = dps.MomentSketch(p=0.5, size=50, unit=unit)
    moment.update(KEYS, counts=[300, 200, 100])
    ranges = dps.RangeSketch(bits=8, unit=unit)
    ranges.update(np.arange(200).repeat(50))
    plane = dps.DensitySketch(
        kernel=dps.kernels.Euclidean(dim=2, bandwidth=1.0), rows=50, unit=unit, bounds=[(0, 4), (0, 4)]
    )
    plane.update(np.full((2000, 2), 2.0))
    table = dps.Table(by="page", columns=[dps.count(), dps.quantiles("seconds", [0.5], bounds=(0, 8))])
    table.update(pa.table({"page": ["/a", "/b"] * 300, "seconds": [2.0, 3.0] * 300}))
    filled = {"table": table, "histogram": histogram, "counts": counts, "numbers": numbers, "heavy": heavy}
    filled |= {"moment": moment, "ranges": ranges, "plane": plane}
    paths = {name: folder / f"{name}.dps" for name in filled}
    for name, sketch in filled.items():
        sketch.release(**spend).save(paths[name])
    drinks = stream_of_drinks()
    for day in range(DAYS):
        drinks.day(["tea"] * (200 + 100 * day) + ["milk"] * 50)
    drinks.series().save(folder / "drinks.dps")
    return paths


def stream_of_drinks() -> dps.ContinualSketch:
    counted = dps.Histogram(unit=dps.per_record(), key_type="text")
    budget = {"epsilon": 1.0, "delta": 1e-6}
    return dps.ContinualSketch(counted, keys=["tea", "milk"], days=30, first_day="2026-11-01", **budget)


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
    options = ["--store", store, "--mount", str(mounted), "--ledger", f"sqlite:///{folder / 'ledger.db'}"]
    rates = ["--read-rate", "100000", "--spec-rate", "100000", "--compute-rate", "1000"]
    with Server(folder, [*options, *rates]) as server:
        listed = server.client(tokens["read"]).get("/v1/releases").json()["releases"]
        yield Service(server, store, folder, tokens, {each["name"]: each["id"] for each in listed})


def code_of(answer: httpx.Response) -> str:
    assert set(answer.json()) == {"error"}
    assert set(answer.json()["error"]) == {"code", "message"}
    return str(answer.json()["error"]["code"])


def test_health_readiness_metrics_and_the_description_need_no_token(service: Service) -> None:
    client = service.client(None)
    assert client.get("/health").json() == {"status": "up"}
    assert client.get("/ready").json() == {"status": "ready"}
    metrics = client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    shown = {line.partition("{")[0].partition(" ")[0] for line in metrics.text.splitlines()}
    board = json.loads((Path(__file__).parents[2] / "deploy" / "grafana.json").read_text())
    queries = " ".join(each["expr"] for panel in board["panels"] for each in panel["targets"])
    # The others are counted first when they happen.
    later = {f"dpsketch_{name}_total" for name in ("answers", "reports", "answer_cpu_seconds", "refusals")}
    assert set(re.findall(r"dpsketch_\w+", queries)) - shown <= later
    assert client.get("/openapi.json").json()["info"]["version"] == dps.__version__
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
    collection = f"/v1/collections/{new_collection(service.client('admin'))}"
    read = ("/v1/releases", "/v1/ledger", f"{collection}/export", f"{collection}/estimate?key=apple")
    asked = {
        "read": [client.get(path) for path in read],
        "collect": [client.post(f"{collection}/reports", json=objects(1)[0])],
        "admin": [
            client.post("/v1/releases?name=x", content=b"", headers={"Content-Type": "application/octet-stream"}),
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
    create = ("serve", "--store", service.store, "token", "create", "--scope", "read", "--name", "temp", "--json")
    made = json.loads(dpsketch(*create))
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


def test_releases_are_listed_found_by_words_and_described(service: Service) -> None:
    client = service.client("read")
    listed = {each["name"]: each for each in client.get("/v1/releases").json()["releases"]}
    assert {name: each["questions"] for name, each in listed.items()} == {
        "counts": ["estimate", "top", "decode"], "numbers": ["estimate", "top", "decode"],
        "heavy": ["estimate", "top", "decode"], "histogram": ["estimate", "top"], "moment": ["statement"],
        "ranges": ["range"], "plane": ["density"], "table": ["estimate", "table"],
        "drinks": ["curve", "change", "estimate", "top"],
    }  # fmt: skip
    assert listed["counts"]["needs_candidates"]
    assert not listed["heavy"]["needs_candidates"]
    for question, names in (("?search=HISTO+gram", ["histogram"]), ("?name=plane", ["plane"]), ("?kind=sparse", [])):
        found = client.get(f"/v1/releases{question}").json()["releases"]
        assert [each["name"] for each in found] == names, question
    whole = client.get(f"/v1/releases/{service.release['plane']}").json()
    assert (whole["dimension"], whole["bounds"], whole["key_type"], whole["version"]) == (2, [[0, 4], [0, 4]], None, 1)
    whole = client.get(f"/v1/releases/{service.release['numbers']}").json()
    assert (whole["key_type"], whole["spec"]["rows"], whole["counts"]) == ("int", 5, "records")
    shown = json.loads(dpsketch("inspect", service.folder / "mounted" / "numbers.dps", "--json"))
    assert {**shown, "file": None} == {**whole["facts"], "file": None}
    assert client.get("/v1/releases/0000").status_code == 404
    (budget,) = client.get("/v1/ledger").json()["datasets"]
    assert (budget["dataset"], budget["epsilon"], budget["spent_epsilon"], budget["releases"]) == ("web", 2.0, 0, 0)


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


def test_every_other_question_is_answered(service: Service) -> None:
    client = service.client("read")
    address = {name: f"/v1/releases/{identifier}" for name, identifier in service.release.items()}
    best = client.post(f"{address['counts']}/top", json={"n": 2, "candidates": KEYS}).json()
    assert [each["key"] for each in best["estimates"]] == ["/a", "/b"]
    assert best["joint"]
    assert client.get(f"{address['counts']}/top").status_code == 422
    assert [each["key"] for each in client.get(f"{address['heavy']}/top?n=2").json()["estimates"]] == [1, 2]
    as_csv = client.get(f"{address['histogram']}/top?n=1&format=csv")
    assert as_csv.headers["content-type"] == "text/csv; charset=utf-8"
    assert as_csv.text.startswith("key,value,low,high\n/a,")
    decoded = client.post(f"{address['counts']}/decode", json={"keys": KEYS}).json()["estimates"]
    assert abs(decoded[0]["value"] - 3000) < 300
    assert client.post(f"{address['histogram']}/decode", json={"keys": ["/a"]}).status_code == 422
    (stated,) = client.get(f"{address['moment']}/estimate").json()["estimates"]
    assert stated["low"] < stated["value"] < stated["high"]
    whole, median = client.get(f"{address['ranges']}/estimate", params={"key": ["0:255", "50%"]}).json()["estimates"]
    assert abs(whole["value"] - 10_000) < 500
    assert abs(median["value"] - 100) < 20
    for bad in ("0", "x:y", "nan%", "1e400%", "300:100"):
        assert client.get(f"{address['ranges']}/estimate", params={"key": bad}).status_code == 422, bad
    there, away = client.post(f"{address['plane']}/density", json={"points": [[2, 2], [0, 0]]}).json()["densities"]
    assert there["low"] > away["high"]
    grid = client.get(f"{address['plane']}/grid?size=8").json()
    release = dps.load(service.folder / "mounted" / "plane.dps").grid(size=(8, 8))
    assert np.allclose(grid["values"], release.value)
    for points in ([[2]], [[2, 2], [2, 4.5]]):
        assert client.post(f"{address['plane']}/density", json={"points": points}).status_code == 422
    assert client.get(f"{address['counts']}/grid").status_code == 422


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


def test_a_table_refuses_in_words(service: Service) -> None:
    client = service.client("read")
    for question, words in (
        ("table?by=country", "names group columns, each once"),
        ("table?sort=country", "sort names a column of the rows"),
        ("table?limit=10001", "query.limit"),
        ("estimate?key=country", "not listed in this table"),
    ):
        refused = client.get(f"/v1/releases/{service.release['table']}/{question}")
        assert (refused.status_code, code_of(refused)) == (422, "invalid_input")
        assert words in refused.text
        assert "country" not in refused.text
    assert "not a table" in client.get(f"/v1/releases/{service.release['counts']}/table").text


def test_curves_windows_days_and_changes_are_those_of_the_stream(service: Service) -> None:
    client, one = service.client("read"), f"/v1/releases/{service.release['drinks']}"
    series = dps.load(service.folder / "mounted" / "drinks.dps")

    def ask(route: str, **asked: Any) -> Any:
        return client.post(f"{one}/{route}", json=asked).json()["estimates"]

    facts = {"days_published": DAYS, "first_day": "2026-11-01", "last_day": "2026-11-09", "of": "histogram"}
    assert client.get(one).json()["facts"].items() >= facts.items()
    found, expected = ask("curve", key="tea", confidence=0.9, window=7), series.curve("tea", window=7, confidence=0.9)
    assert [each["key"] for each in found] == expected.key
    assert [each["low"] for each in found] == pytest.approx(expected.low.tolist())
    assert ask("curve", key="tea", together=True)[0]["high"] > ask("curve", key="tea")[0]["high"]
    days = series.between(3, 9).estimate(["milk"]).value[0]
    assert ask("estimate", keys=["milk"], first=3, last=9)[0]["value"] == pytest.approx(days)
    total = series.total().estimate(["tea"]).value[0]
    assert ask("estimate", keys=["tea"])[0]["value"] == pytest.approx(total)
    assert [each["key"] for each in ask("top", first=9, last=9)] == ["tea", "milk"]
    (changed,), expected = ask("change", key="tea", later=[8, 9], earlier=[1, 2]), series.change("tea", (8, 9), (1, 2))
    assert (changed["value"], changed["low"]) == pytest.approx((expected.value[0], expected.low[0]))
    assert client.get(f"{one}/curve?key=tea&format=csv").text.startswith("key")
    for route, asked in (
        ("curve", {"key": "tea", "window": DAYS + 1}),
        ("curve", {"key": "neither"}),
        ("change", {"key": "tea", "later": [5, 3], "earlier": [1, 2]}),
        ("estimate", {"keys": ["tea"], "last": DAYS + 1}),
    ):
        answer = client.post(f"{one}/{route}", json=asked)
        assert answer.status_code == 422
        assert "neither" not in answer.text


def test_a_new_day_appears_without_a_restart(service: Service) -> None:
    """The file of yesterday is gone; the newest of its name is shown."""
    client, stream, path = service.client("read"), stream_of_drinks(), service.folder / "mounted" / "new.dps"
    shown: list[str] = []

    def newest() -> str:
        found = [each["id"] for each in client.get("/v1/releases?name=new").json()["releases"]]
        return found[0] if found else ""

    for _ in range(2):
        stream.day(["tea"] * 4000)
        stream.series().save(path)
        wait_for(lambda: newest() not in ("", *shown))
        shown.append(newest())
    days = client.get(f"/v1/releases/{shown[1]}/curve?key=tea&window=1").json()["estimates"]
    assert [each["value"] for each in days] == pytest.approx([4000] * 2, abs=100)
    assert client.get(f"/v1/releases/{shown[0]}").status_code == 404
    path.unlink()
    wait_for(lambda: newest() == "")


def test_the_state_of_a_stream_is_never_mounted(service: Service, tmp_path: Path) -> None:
    StreamFolder(tmp_path / "state").begin(stream_of_drinks())
    options = ["--port", "0", f"--store={tmp_path / 'other.db'}", f"--mount={tmp_path / 'state'}"]
    command = [sys.executable, "-m", "dpsketch", "serve", *options]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert refused.returncode != 0
    assert "state of a stream, which is sensitive" in " ".join(refused.stderr.split())
    # A stream that is begun in a folder that is mounted already takes what lies there off the list.
    client, mounted = service.client("read"), service.folder / "mounted"
    StreamFolder(mounted).token()
    wait_for(lambda: not client.get("/v1/releases").json()["releases"])
    for left in ("stream.begun", "stream.lock"):
        (mounted / left).unlink()
    wait_for(lambda: len(client.get("/v1/releases").json()["releases"]) == len(service.release))


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
    name, other = f"mine {uuid.uuid4()}", f"mine too {uuid.uuid4()}"  # a second try finds no version of the first
    added = client.post("/v1/releases", params={"name": name}, content=content, headers=octets)
    assert added.status_code == 201
    identifier = added.json()["id"]
    again = client.post("/v1/releases", params={"name": other}, content=content, headers=octets)
    assert again.json() == {**added.json(), "name": other}
    assert service.client("read").get(f"/v1/releases/{identifier}").json()["name"] == other
    assert client.delete(f"/v1/releases/{identifier}").status_code == 204
    assert client.get(f"/v1/releases/{identifier}").status_code == 404
    assert code_of(client.delete(f"/v1/releases/{service.release['counts']}")) == "mounted"


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


def test_a_bad_question_is_refused_without_being_repeated(service: Service) -> None:
    address = f"/v1/releases/{service.release['counts']}/estimate"
    bodies = ("{", "[]", "{}", '{"keys": [1.5]}', '{"keys": [null]}', '{"keys": ["\\ud800"]}', '{"secret-field": 1}')
    for body in (*bodies, '{"keys": ["a"], "confidence": 1}'):
        answer = service.client("read").post(address, content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, code_of(answer)) == (422, "invalid_input"), body
        assert "secret-field" not in answer.text
        assert "ud800" not in answer.text
    spec = local.PrivSketchAsPublished(epsilon=1.0, rows=4, width=16).to_json()
    answer = service.client("admin").post("/v1/collections", json={"name": "x", "spec": spec})
    assert answer.status_code == 422
    assert "not private" in answer.json()["error"]["message"]


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
    told = (SECRET_KEY, "Secret name", reports[0]["id"], "127.0.0.1", "key=", identifier, *service.tokens.values())
    assert [hidden for hidden in told if hidden in text] == []
    kept = b"".join(path.read_bytes() for path in service.folder.glob("service.db*"))
    assert bytes.fromhex(reports[0]["id"]) in kept
    sent = ("127.0.0.1", "httpx", "User-Agent", *service.tokens.values())
    assert [hidden for hidden in sent if hidden.encode() in kept] == []
    assert all(line["level"] in ("info", "warning") for line in service.server.lines())
    assert any(line["event"] == "mounted file refused" for line in service.server.lines())


def test_limits_and_public_access(tmp_path: Path) -> None:
    """Small limits, everyone may read and report, and telemetry that the environment asks for stays off."""
    store = str(tmp_path / "limits.db")
    admin = new_token(store, "admin")
    limits = [
        "--max-json",
        "4096",
        "--public-batch",
        "10",
        "--timeout",
        "1",
        "--address-rate",
        "5",
        "--spec-rate",
        "15",
    ]
    options = ["--store", store, "--public-read", "--public-collect", "--allow-origin", "https://shop.example", *limits]
    with socket.create_server(("127.0.0.1", 0)) as spy:
        spy.settimeout(0.2)
        collector = f"http://127.0.0.1:{spy.getsockname()[1]}"
        telemetry = {"FASTAPI_OTEL_AUTO_CONFIGURE": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": collector}
        with Server(tmp_path, options, telemetry) as server:
            client = server.client()
            identifier = new_collection(server.client(admin))
            address = f"/v1/collections/{identifier}/reports"
            assert client.get("/v1/session").json()["scopes"] == ["collect", "read"]
            assert client.post("/v1/collections", json={"name": "x", "spec": {}}).status_code == 401
            large = client.post(address, json=objects(80))
            assert (large.status_code, code_of(large)) == (413, "too_large")
            pieces = client.post(address, content=iter([b" " * 3000] * 3), headers={"Content-Type": "application/json"})
            assert (pieces.status_code, code_of(pieces)) == (413, "too_large")
            many = client.post(address, json=objects(11))
            assert (many.status_code, code_of(many)) == (413, "too_many")
            with server.connect() as half:  # announces a body and sends a part of it
                kind = "Content-Type: application/json\r\nContent-Length: 100"
                half.sendall(f"POST {address} HTTP/1.1\r\nHost: localhost\r\n{kind}\r\n\r\n{{".encode())
                assert b" 408 " in half.recv(4096).splitlines()[0]
            time.sleep(1.1)
            for site, allowed in (
                ("https://shop.example", "https://shop.example"),
                ("https://elsewhere.example", None),
            ):
                answer = client.post(address, json=objects(1)[0], headers={"Origin": site})
                assert answer.headers.get("access-control-allow-origin") == allowed
            answers = [client.post(address, json=objects(1)[0]) for _ in range(15)]
            assert {each.status_code for each in answers} == {202, 429}
            assert all(int(each.headers["retry-after"]) >= 1 for each in answers if each.status_code == 429)
            assert 429 in {client.get("/v1/collections").status_code for _ in range(40)}
            counters = server.client(admin).get(f"/v1/collections/{identifier}/counters").json()
            assert counters["oversized"] == 3
        with pytest.raises(TimeoutError):
            spy.accept()


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
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "serve.md").read_text(encoding="utf-8")
    for path, methods in service.client(None).get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            assert operation["description"], (method, path)
            assert {"4XX", "5XX"} <= set(operation["responses"]), (method, path)
            assert ("security" in operation) == path.startswith("/v1/")
            assert f"| `{method.upper()}` | `{path.replace('{identifier}', '{id}')}` |" in page, (method, path)
