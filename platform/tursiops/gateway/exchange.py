"""One request on its way through the gateway: what is known of it so far, and the record it ends in."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import uuid_utils

from tursiops.gateway.asgi import HeaderList
from tursiops.gateway.callers import Caller
from tursiops.gateway.errors import GatewayError
from tursiops.gateway.ledger import Slot
from tursiops.gateway.records import UsageEntry
from tursiops.gateway.request import Request
from tursiops.gateway.snapshot import RouteEntry


def new_request_id() -> str:
    """UUIDv7 as hex: sorts by time, unique over all gateways."""
    return f"{uuid_utils.uuid7().int:032x}"


@dataclass(slots=True, eq=False)
class Exchange:
    """Written by the one task that serves the request, and by the sweeper (`broken`). Times: `perf_counter` s."""

    request_id: str = field(default_factory=new_request_id)
    started: float = field(default_factory=time.perf_counter)
    started_at: float = field(default_factory=time.time)
    caller: Caller | None = None
    request: Request | None = None
    route: RouteEntry | None = None

    instance: str = ""
    reason: str = ""
    may_retry: bool = True  # the client can refuse it: x-tursiops-retry: off
    retries: int = 0
    queue_s: float = 0.0
    engine_s: float = 0.0  # spent waiting for engines before the first byte
    first_byte: float = 0.0
    pinged: bool = False  # headers have left, but no byte of the answer

    status: int = 0  # of the answer as the client must judge it: 502 for a stream that broke
    error_code: str = ""
    finish_reason: str = ""
    prompt_estimate: int = 0  # billed where the engine did not get to tell
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    disconnected: bool = False

    waits_for_engine: float = 0.0  # since when the engine owes a piece; 0: it does not
    waits_for_client: float = 0.0  # since when the client has taken nothing; 0: it takes
    stopped: bool = False  # by the end of this process
    broken: str = ""  # why the sweeper ended it
    close_engine: Callable[[], None] | None = None  # makes a read that waits for the engine fail
    slot: Slot | None = None  # in the ledger; requests that are billed have one
    answered: bool = False  # the last bytes are on their way: a client that leaves now has its answer

    def sent_to(self, instance: str) -> None:
        """From here on the request costs something."""
        self.instance = instance
        if self.slot is not None:
            self.slot.write(self.record())
            self.slot.passed(0, self.prompt_estimate)

    def failed(self, error: GatewayError) -> None:
        self.status = error.status
        self.error_code = error.code

    def headers(self) -> HeaderList:
        """Headers that explain the answer, as far as it is known."""
        pairs = [(b"x-request-id", self.request_id), (b"x-tursiops-retries", str(self.retries))]
        if self.instance:
            pairs.append((b"x-tursiops-instance", self.instance))
        if self.reason:
            pairs.append((b"x-tursiops-route", self.reason))
        if self.route is not None:
            pairs.append((b"x-tursiops-queue-ms", f"{self.queue_s * 1000:.1f}"))
            pairs.append((b"x-tursiops-overhead-ms", f"{self.overhead_s() * 1000:.1f}"))
        return [(name, value.encode("latin-1", "replace")) for name, value in pairs]

    def overhead_s(self) -> float:
        """Our own time so far: neither queue nor engine."""
        until = self.first_byte or time.perf_counter()
        return max(0.0, until - self.started - self.queue_s - self.engine_s)

    def silent_events(self) -> int:
        """How many events of its stream say nothing yet: the first one of each answer in a chat."""
        assert self.request is not None
        return self.request.choices if self.request.endpoint.chat else 0

    def generated(self, events: int) -> int:
        """Tokens that `events` of its stream stand for."""
        return max(0, events - self.silent_events())

    def used_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def record(self) -> UsageEntry:
        """The usage record of a request that has its deployment, as it stands now."""
        assert self.caller is not None
        assert self.route is not None
        assert self.request is not None
        now = time.perf_counter()
        return UsageEntry(
            request_id=self.request_id,
            team=self.caller.team,
            api_key_id=self.caller.key,
            user_id=self.caller.user,
            deployment_id=self.route.deployment,
            instance_id=self.instance or None,
            served_name=self.route.name,
            path=self.request.endpoint.path,
            status=self.status,
            finish_reason=self.finish_reason[:16],
            error_code=self.error_code[:64],
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.completion_tokens,
            started_at=self.started_at,
            queue_ms=round(self.queue_s * 1000, 2),
            ttft_ms=round((self.first_byte - self.started) * 1000, 2) if self.first_byte else None,
            duration_ms=round((now - self.started) * 1000, 2),
            retries=self.retries,
            disconnected=self.disconnected,
        )
