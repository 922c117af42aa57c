"""What Prometheus may ask: how many requests and reports, how long they took. No keys, no names, no addresses."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_SIZES = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144)


class Metrics:
    """The counters of one service."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "dpsketch_requests_total", "Requests by route and status.", ["route", "status"], registry=self._registry
        )
        self.request_seconds = Histogram(
            "dpsketch_request_seconds",
            "Time to answer, by route.",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.reports = Counter(
            "dpsketch_reports_total", "Reports by what became of them.", ["outcome"], registry=self._registry
        )
        self.commit_seconds = Histogram(
            "dpsketch_commit_seconds", "Time of a group commit.", buckets=_SECONDS, registry=self._registry
        )
        self.group_size = Histogram(
            "dpsketch_group_reports", "Reports in a group commit.", buckets=_SIZES, registry=self._registry
        )
        self.refusals = Counter(
            "dpsketch_refusals_total", "Requests that were refused, by reason.", ["reason"], registry=self._registry
        )
        self.answers = Counter("dpsketch_answers_total", "Answers, kept or computed.", ["how"], registry=self._registry)
        self.answer_seconds = Counter(
            "dpsketch_answer_cpu_seconds_total", "Processor time spent on answers.", registry=self._registry
        )
        self.queue_requests = self._gauge("dpsketch_queue_requests", "Requests whose reports wait to be written.")
        self.queue_bytes = self._gauge("dpsketch_queue_bytes", "Bytes of reports that wait to be written.")
        self.queue_lag = self._gauge("dpsketch_queue_lag_seconds", "How long the oldest of them has waited.")
        self.store_bytes = self._gauge("dpsketch_store_bytes", "Bytes that the store takes on the disk.")
        self.memory_bytes = self._gauge("dpsketch_memory_bytes", "Memory that the process holds.")
        self.report_bytes = self._gauge(
            "dpsketch_report_memory_bytes", "Of it, what is remembered of the reports that collections hold."
        )
        self.kept_bytes = self._gauge("dpsketch_answer_memory_bytes", "Of it, answers that are kept.")
        self.collections = Gauge("dpsketch_collections", "Collections.", registry=self._registry)
        self.releases = Gauge("dpsketch_releases", "Releases served.", registry=self._registry)

    def _gauge(self, name: str, words: str) -> Gauge:
        return Gauge(name, words, registry=self._registry)

    def count_reports(self, outcomes: dict[str, int]) -> None:
        """Count what became of reports."""
        for outcome, number in outcomes.items():
            if number:
                self.reports.labels(outcome).inc(number)

    def text(self) -> bytes:
        """Return all of it as Prometheus reads it."""
        return generate_latest(self._registry)
