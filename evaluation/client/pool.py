"""The front of the client: one schedule, owned here, sent by one or several processes."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable

from msgspec import Struct

from evaluation.schema import Endpoint, Health, RequestRecord
from evaluation.workload.item import Planned


class Stop:
    """How the caller ends a run from outside, also from `on_record`. What was measured is kept either way."""

    def drain(self) -> None:
        """Nothing new is sent; what is in flight is read to its end."""
        raise NotImplementedError

    def cut(self) -> None:
        """What is in flight ends at once, with status "cancelled" and the chunks it had."""
        raise NotImplementedError


class Sent(Struct, kw_only=True):
    """`start_ns`: the schedule's zero on the monotonic clock, so intended = start + offset."""

    start_ns: int
    end_ns: int
    records: int
    health: Health


async def send(
    planned: Iterable[Planned] | AsyncIterable[Planned],
    endpoint: Endpoint,
    *,
    on_record: Callable[[RequestRecord], None],
    processes: int = 1,
    concurrency: int | None = None,
    stop: Stop | None = None,
    api_key: str = "",
    level: int = 0,
) -> Sent:
    """Send what is planned and hand back each request's record as it ends (within 50 ms, in no order).

    planned: by rising offset, may be endless (it is drawn 2 s ahead). concurrency: closed loop with that many requests
    (or sessions) at once over all processes; offsets are ignored. `Sent.health` is the client's verdict of itself.
    Raises `EndpointError` only where nothing can be sent at all (a URL that is none); an endpoint that is down is a
    status of each record.
    """
    raise NotImplementedError
