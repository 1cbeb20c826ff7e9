"""What this gateway has running on each instance. Its own counts: scraped ones lag behind a burst."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tursiops.gateway.pick import Load


class Loads(Mapping[str, Load]):
    """Instance id → Load. Entries of instances that left the snapshot go with `forget`."""

    def __init__(self, cooldown: float) -> None:
        self._cooldown = cooldown
        self._in_flight: dict[str, int] = {}
        self._picked: dict[str, int] = {}
        self._failed_at: dict[str, float] = {}

    def __getitem__(self, instance: str) -> Load:
        if instance not in self._picked:
            raise KeyError(instance)
        failed = self._failed_at.get(instance)
        cooling = failed is not None and time.monotonic() - failed < self._cooldown
        return Load(self._in_flight.get(instance, 0), self._picked[instance], cooling)

    def __iter__(self) -> Iterator[str]:
        return iter(self._picked)

    def __len__(self) -> int:
        return len(self._picked)

    @contextmanager
    def running(self, instance: str) -> Iterator[None]:
        """One request on `instance`, from its sending to its end, however it ends."""
        if instance not in self._picked:
            self._picked[instance] = min(self._picked.values(), default=0)  # a new one is not flooded to catch up
        self._picked[instance] += 1
        self._in_flight[instance] = self._in_flight.get(instance, 0) + 1
        try:
            yield
        finally:
            self._in_flight[instance] -= 1

    def failed(self, instance: str) -> None:
        self._failed_at[instance] = time.monotonic()

    def succeeded(self, instance: str) -> None:
        self._failed_at.pop(instance, None)

    def forget(self, known: frozenset[str]) -> None:
        """Drop idle instances that are not in `known`."""
        for instance in [name for name in self._picked if name not in known and not self._in_flight.get(name)]:
            for table in (self._picked, self._in_flight, self._failed_at):
                table.pop(instance, None)
