"""Logs, metrics and traces of the service: none holds a key, a name, a report, an address or a query string."""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

import dpsketch
from dpsketch.errors import InvalidInput

__all__ = ["CONTENT_TYPE", "Metrics", "Traces", "configure", "log", "memory_in_use", "place_of", "to_collector"]

Level = Literal["info", "warning", "error"]
Plain = str | int | float | bool | None

_logger = logging.getLogger("dpsketch.server")


def log(level: Level, event: str, **facts: Plain) -> None:
    """Write one line. ``event`` is a fixed phrase; facts are numbers and names that the service itself chose."""
    _logger.log(getattr(logging, level.upper()), event, extra={"facts": facts})


def place_of(trace: TracebackType | None) -> str:
    """Say where an error was raised; its text may quote what was sent, so that is never logged."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"


def _event(record: logging.LogRecord) -> str:
    """Return what happened. A foreign record's arguments may be anything, an address say: its fixed part must do."""
    if record.name == "asyncio":
        return "event loop"  # its messages have no fixed part: they quote callbacks, arguments and results
    if record.name == "py.warnings":
        return "warning of a library"  # its message is its argument, and may quote what was computed with
    if not isinstance(record.msg, str):
        return type(record.msg).__name__
    # Uvicorn logs what stopped the start as text, traceback and all; the application has said why in a line of its own.
    first = record.msg.partition("\n")[0]
    return "the application did not start" if first.startswith("Traceback") else first


class _Json(logging.Formatter):
    """Formats a record as JSON. Of an exception it tells the type and the place, never the text or the values."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Plain] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": _event(record),
        }
        if record.name != _logger.name:
            line["logger"] = record.name
        facts: dict[str, Plain] = getattr(record, "facts", {})
        line |= facts
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            line["place"] = place_of(record.exc_info[2])
        return json.dumps(line, ensure_ascii=False)


def configure(level: Level) -> None:
    """Send this process's logs to standard error: ours from ``level`` on, those of libraries from warnings on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    _logger.setLevel(level.upper())
    # Whatever Python itself would write beside the log becomes a line of it.
    logging.captureWarnings(True)
    sys.unraisablehook = lambda found: log("error", "error ignored", error=found.exc_type.__name__)
    threading.excepthook = lambda found: log("error", "thread ended", error=found.exc_type.__name__)


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_SIZES = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144)


class Metrics:
    """The counters of one service."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self._registry}
        self.requests = Counter("dpsketch_requests_total", "Requests by route and status.", ["route", "status"], **own)
        self.request_seconds = Histogram(
            "dpsketch_request_seconds", "Time to answer, by route.", ["route"], buckets=_SECONDS, **own
        )
        self.reports = Counter("dpsketch_reports_total", "Reports by what became of them.", ["outcome"], **own)
        self.commit_seconds = Histogram("dpsketch_commit_seconds", "Time of a group commit.", buckets=_SECONDS, **own)
        self.group_size = Histogram("dpsketch_group_reports", "Reports in a group commit.", buckets=_SIZES, **own)
        self.refusals = Counter("dpsketch_refusals_total", "Requests that were refused, by reason.", ["reason"], **own)
        self.answers = Counter("dpsketch_answers_total", "Answers, kept or computed.", ["how"], **own)
        self.answer_seconds = Counter("dpsketch_answer_cpu_seconds_total", "Processor time spent on answers.", **own)
        self.queue_requests = Gauge("dpsketch_queue_requests", "Requests whose reports wait to be written.", **own)
        self.queue_bytes = Gauge("dpsketch_queue_bytes", "Bytes of reports that wait to be written.", **own)
        self.queue_lag = Gauge("dpsketch_queue_lag_seconds", "How long the oldest of them has waited.", **own)
        self.store_bytes = Gauge("dpsketch_store_bytes", "Bytes that the store takes on the disk.", **own)
        self.memory_bytes = Gauge("dpsketch_memory_bytes", "Memory that the process holds.", **own)
        words = "Of it, what is remembered of the reports that collections hold."
        self.report_bytes = Gauge("dpsketch_report_memory_bytes", words, **own)
        self.kept_bytes = Gauge("dpsketch_answer_memory_bytes", "Of it, answers that are kept.", **own)
        self.collections = Gauge("dpsketch_collections", "Collections.", **own)
        self.releases = Gauge("dpsketch_releases", "Releases served.", **own)

    def count_reports(self, outcomes: dict[str, int]) -> None:
        """Count what became of reports."""
        for outcome, number in outcomes.items():
            if number:
                self.reports.labels(outcome).inc(number)

    def text(self) -> bytes:
        """Return all of it as Prometheus reads it."""
        return generate_latest(self._registry)


def memory_in_use() -> int:
    """Return how many bytes of memory the process holds; where the system does not say, the most that it held."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


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
