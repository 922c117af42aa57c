"""OpenTelemetry: off unless asked for, and then a route, a status and a time, whatever a request holds."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import httpx
import pytest

from dpsketch.errors import InvalidInput
from dpsketch.server import create_app, telemetry
from dpsketch.server.settings import Settings

HERE = "http://localhost"
SECRETS = ("a-key-of-its-own", "an-id-of-its-own", "203.0.113.7", "dps_secret", "00-0af7651916cd43dd8448eb211c80319c")


def test_spans_have_routes_and_nothing_of_what_was_asked(tmp_path: Path) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="the extra dpsketch[telemetry] is not installed")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    app = create_app(Settings(store=str(tmp_path / "traces.db"), public=frozenset({"read"}), client_header="X-Real-IP"))

    async def work() -> None:
        transport = httpx.ASGITransport(app)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url=HERE) as client:
            await client.get("/health")
            assert exporter.get_finished_spans() == (), "it is off unless asked for"
            app.state.service.traces = telemetry.Traces(provider)
            headers = {"X-Real-IP": "203.0.113.7", "traceparent": f"{SECRETS[4]}-b7ad6b7169203331-01"}
            await client.get("/v1/releases/an-id-of-its-own/estimate?key=a-key-of-its-own", headers=headers)
            await client.get("/v1/releases", headers={"Authorization": "Bearer dps_secret"})
            await client.request("BREW", "/nowhere/a-key-of-its-own")

    asyncio.run(work())
    spans = exporter.get_finished_spans()
    assert [(span.name, span.attributes["http.response.status_code"]) for span in spans] == [
        ("GET /v1/releases/{identifier}/estimate", 404), ("GET /v1/releases", 401), ("_OTHER other", 404),
    ]  # fmt: skip
    assert all(span.parent is None and span.end_time > span.start_time for span in spans)
    said = "".join(span.to_json() for span in spans)
    assert [secret for secret in SECRETS if secret.removeprefix("00-") in said] == []


def test_telemetry_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(InvalidInput, match=r"dpsketch\[telemetry\]"):
        telemetry.to_collector()
