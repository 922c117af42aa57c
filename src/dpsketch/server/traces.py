"""Spans for OpenTelemetry, where an operator asks for them: a request's method, route, status and time.

Nothing of what was asked or sent is in a span: no address, no query, no key, no header, no id. A caller's own trace is
not taken up, so that nobody marks requests from outside.
"""

from __future__ import annotations

import time
from typing import Any

import dpsketch
from dpsketch.errors import InvalidInput

__all__ = ["Traces", "to_collector"]

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class Traces:
    """Notes requests as spans of a provider; without one, nothing."""

    def __init__(self, provider: Any = None) -> None:
        self._provider = provider
        self._tracer = None if provider is None else provider.get_tracer("dpsketch.server", dpsketch.__version__)

    def note(self, method: str, route: str, status: int, seconds: float) -> None:
        """Note a request that was answered just now; ``route`` is the pattern, not what was asked for."""
        if self._tracer is None:
            return
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, StatusCode

        end = time.time_ns()
        verb = method if method in _METHODS else "_OTHER"
        facts = {"http.request.method": verb, "http.route": route, "http.response.status_code": status}
        begin = end - int(seconds * 1e9)
        span = self._tracer.start_span(
            f"{verb} {route}", Context(), SpanKind.SERVER, attributes=facts, start_time=begin
        )
        if status >= 500:
            span.set_status(StatusCode.ERROR)
        span.end(end)

    def stop(self) -> None:
        """Send what waits."""
        if self._provider is not None:
            self._provider.shutdown()


def to_collector() -> Traces:
    """Return spans that go where ``OTEL_EXPORTER_OTLP_ENDPOINT`` says, in a thread of their own."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise InvalidInput("--telemetry needs OpenTelemetry: pip install 'dpsketch[telemetry]'.") from None
    provider = TracerProvider(resource=Resource({"service.name": "dpsketch", "service.version": dpsketch.__version__}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Traces(provider)
