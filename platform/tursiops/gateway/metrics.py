"""Prometheus series of the gateway. Label sets are bounded: unknown names never become a label."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

registry = CollectorRegistry()
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_MODELS = 200  # series per metric; later names are counted as "other"


def _counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
    return Counter(f"tursiops_gateway_{name}", text, labels, registry=registry)


def _gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
    return Gauge(f"tursiops_gateway_{name}", text, labels, registry=registry)


def _histogram(name: str, text: str, labels: tuple[str, ...] = (), buckets: tuple[float, ...] = _SECONDS) -> Histogram:
    return Histogram(f"tursiops_gateway_{name}", text, labels, registry=registry, buckets=buckets)


requests = _counter("requests_total", "Requests that ended, by model and status", ("model", "status"))
refused = _counter("refused_total", "Requests refused before a model was chosen, by code", ("code",))
tokens = _counter("tokens_total", "Tokens by model and kind (prompt, completion)", ("model", "kind"))
retries = _counter("retries_total", "Requests sent again before their first byte, by reason", ("reason",))
interrupted = _counter("interrupted_total", "Answers that broke after their first byte", ("model",))
disconnects = _counter("disconnects_total", "Clients that left before their answer was complete", ("model",))
in_flight = _gauge("requests_in_flight", "Requests between authentication and their last byte")
queued = _gauge("requests_queued", "Requests that wait for a place")
queue_seconds = _histogram("queue_seconds", "Time that admitted requests waited for a place")
ttft_seconds = _histogram("ttft_seconds", "Arrival to first event sent, by model", ("model",))
request_seconds = _histogram("request_seconds", "Arrival to last byte, by model", ("model",))
overhead_seconds = _histogram(
    "overhead_seconds",
    "The gateway's own time before the first byte: without queue and engine",
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25),
)
snapshot_age = _gauge("snapshot_age_seconds", "Time since the controller made the snapshot that is served from")
snapshot_version = _gauge("snapshot_version", "Version of the snapshot that is served from")
limits_local = _counter("limits_local_total", "Reservations made without Redis, in this process alone")
usage_spilled = _counter("usage_spilled_total", "Usage records written to disk because Redis was away")
usage_dropped = _counter("usage_dropped_total", "Usage records lost: buffer, Redis and disk were all full")
web_errors = _counter("web_errors_total", "Requests for the web process that could not be passed on")

_known: set[str] = set()


def label(team: str, name: str) -> str:
    """Label of a served name; pass only names of the snapshot."""
    value = f"{team}/{name}"
    if value not in _known:
        if len(_known) >= _MODELS:
            return "other"
        _known.add(value)
    return value


def render() -> bytes:
    return generate_latest(registry)
