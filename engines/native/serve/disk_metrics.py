"""What the disk tier counts, for Prometheus; only of an engine that has one (docs/scheduling.md)."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from engines.native.disk_tier import DiskCounts


class DiskMetrics:
    """prefix: of every name."""

    def __init__(self, registry: CollectorRegistry, prefix: str) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(prefix + name, text, labels, registry=registry)

        self._lookups = counter("kv_disk_lookups", "Full blocks of prompts that only the disk could have", "result")
        self._lost = counter("kv_disk_lost_blocks", "Blocks that were not written, or were deleted", "reason")
        self._bytes = counter("kv_disk_bytes", "Bytes of blocks", "direction")
        self._errors = counter("kv_disk_errors", "Reads and writes that the system refused")
        self._used = Gauge(prefix + "kv_disk_bytes_used", "Bytes of files, of all models", registry=registry)
        self._writing = Gauge(prefix + "kv_disk_writing", "0 while the disk is full or broken", registry=registry)
        self._seen = DiskCounts()
        self._add(DiskCounts())

    def restarted(self) -> None:
        """Another core counts from nought."""
        self._seen = DiskCounts()

    def update(self, counts: DiskCounts) -> None:
        self._used.set(counts.bytes_used)
        self._writing.set(counts.writing)
        if counts != self._seen:
            self._add(counts)

    def _add(self, counts: DiskCounts) -> None:
        seen, self._seen = self._seen, counts
        for result in ("hits", "misses", "late"):
            self._lookups.labels(result).inc(getattr(counts, result) - getattr(seen, result))
        for reason in ("dropped", "evicted", "invalid"):
            self._lost.labels(reason).inc(getattr(counts, reason) - getattr(seen, reason))
        self._bytes.labels("read").inc(counts.read_bytes - seen.read_bytes)
        self._bytes.labels("written").inc(counts.written_bytes - seen.written_bytes)
        self._errors.inc(counts.errors - seen.errors)
