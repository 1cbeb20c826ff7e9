"""What the API process and the core say to each other, over two ZeroMQ sockets in a private folder.

Every message is one frame: a version byte, then msgpack. Both ends come from one installation, so another version
means a mixed environment and is refused. Token ids travel as raw int32, and one step's tokens in one message.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import zmq

from engines.native.disk_tier import DiskCounts
from engines.native.pooling.messages import Pool, PoolUpdate
from engines.native.request import Finish, SamplingParams, Timeouts

VERSION = 1

TopTokens = tuple[list[int], list[float]]  # ids and logprobs of the k most likely tokens


class Add(msgspec.Struct, tag=True, array_like=True):
    """A request to serve. token_ids: int32 bytes; times in seconds from its arrival, 0 or None = no limit."""

    id: int
    token_ids: bytes
    params: SamplingParams
    priority: int = 0
    salt: str = ""
    timeouts: Timeouts = Timeouts()
    tenant: str = ""


class End(msgspec.Struct, tag=True, array_like=True):
    """End these requests now: the client left (abort), or a stop string was met (stop)."""

    ids: list[int]
    finish: Finish


class Shutdown(msgspec.Struct, tag=True, array_like=True):
    """Leave the loop and exit 0."""


class Trace(msgspec.Struct, tag=True, array_like=True):
    """Record the next `steps` steps into `file`, for at most `timeout` s. kind: timeline or allocations."""

    kind: str
    steps: int
    timeout: float
    file: str


class MemoryAsked(msgspec.Struct, tag=True, array_like=True):
    """Say where the memory is."""


class Loading(msgspec.Struct, tag=True, array_like=True):
    progress: float  # 0…1
    text: str


class Ready(msgspec.Struct, tag=True, array_like=True):
    """The core serves. `facts` go into state.json."""

    num_blocks: int
    block_size: int
    max_len: int  # tokens, prompt and output
    max_num_seqs: int
    facts: dict[str, Any]


class LoadFailed(msgspec.Struct, tag=True, array_like=True):
    """The model can't be served as asked; starting again will not help."""

    code: str
    message: str


class Ending(msgspec.Struct, array_like=True):
    id: int
    finish: Finish
    message: str = ""
    code: str = ""  # of a time-out: TimeoutLayer; of an error: INVALID_GRAMMAR, or "" for the engine's own
    drafted: int = -1  # tokens that were guessed for it and checked; −1 = the core does not say


class PromptLogprobs(msgspec.Struct, array_like=True):
    id: int
    first: int  # position of the first value
    values: list[float]
    top: list[TopTokens]


class SpeculationCounts(msgspec.Struct, array_like=True):
    """What speculation has done since the core started. A row-pass is one request in one pass."""

    steps: int = 0  # passes
    verified: int = 0  # of them those that checked guesses
    rows: int = 0  # row-passes that checked guesses
    drafted: int = 0  # tokens guessed and checked
    accepted: int = 0  # of them those that stood
    by_source: dict[str, tuple[int, int]] = {}  # proposer → (drafted, accepted)
    saved_s: float = 0.0  # s less than plain passes would have taken for the same tokens, by measured costs
    speedup: float = 1.0  # (1 + hits) / cost ratio, lately; 1 while nothing is guessed
    width: int = 0  # guesses a row that the budget lets through now


class Update(msgspec.Struct, tag=True, array_like=True):
    """All that one step brought. ids: int64 bytes [k]; tokens: int32 bytes [k]; logprobs: float32 bytes [k], empty
    where no request asked; top: index into the k tokens → the most likely ones. sources: int8 bytes [k], the number of
    the proposer that guessed the token, −1 = it was drawn plainly; empty where nothing was guessed."""

    ids: bytes
    tokens: bytes
    logprobs: bytes
    top: dict[int, TopTokens]
    prompt_logprobs: list[PromptLogprobs]
    started: list[tuple[int, int]]  # (id, tokens found in the prefix cache)
    endings: list[Ending]
    running: int
    waiting: int
    blocks_used: int
    preemptions: int  # since the core started
    swaps: int = 0  # of them by swapping
    host_blocks_used: int = 0
    tenants_waiting: int = 0
    disk: DiskCounts | None = None  # since the core started
    phases: tuple[float, ...] = ()  # s in each of step_clock.PHASES; of a message without a step, none
    sources: bytes = b""
    speculation: SpeculationCounts | None = None  # None: the engine does not speculate


class Traced(msgspec.Struct, tag=True, array_like=True):
    """A trace has ended: its file lies there, or `code` and `message` say why not."""

    steps: int
    code: str = ""
    message: str = ""


class MemoryFound(msgspec.Struct, tag=True, array_like=True):
    """found: as engines.native.memory_table gives it, or `code` and `message` say why there is nothing."""

    found: dict[str, Any]
    code: str = ""
    message: str = ""


ToCore = Add | End | Trace | MemoryAsked | Shutdown | Pool
FromCore = Loading | Ready | LoadFailed | Update | Traced | MemoryFound | PoolUpdate

_encoder = msgspec.msgpack.Encoder()
_to_core = msgspec.msgpack.Decoder(ToCore)
_from_core = msgspec.msgpack.Decoder(FromCore)


class WrongVersion(Exception):
    """The other end speaks another version of the protocol."""


def encode(message: ToCore | FromCore) -> bytes:
    return bytes((VERSION,)) + _encoder.encode(message)


def decode_to_core(frame: bytes) -> ToCore:
    """Raises WrongVersion, or msgspec.ValidationError."""
    return _to_core.decode(_payload(frame))


def decode_from_core(frame: bytes) -> FromCore:
    return _from_core.decode(_payload(frame))


def _payload(frame: bytes) -> memoryview:
    if not frame or frame[0] != VERSION:
        raise WrongVersion(f"message of version {frame[0] if frame else 'none'}, this end speaks {VERSION}")
    return memoryview(frame)[1:]


class CoreLink:
    """The core's end. Lives as long as the core process."""

    def __init__(self, folder: Path) -> None:
        self._context = zmq.Context(io_threads=1)
        self._inbox = self._context.socket(zmq.PULL)
        self._outbox = self._context.socket(zmq.PUSH)
        for socket, name in ((self._inbox, "to-core"), (self._outbox, "from-core")):
            socket.set_hwm(0)  # the requests in flight are bounded, so what is queued is too
            socket.connect(f"ipc://{folder / name}")

    def receive(self, timeout_ms: int) -> list[ToCore]:
        """All messages there are; waits for the first up to `timeout_ms`."""
        messages: list[ToCore] = []
        if timeout_ms:
            self._inbox.poll(timeout_ms)
        with contextlib.suppress(zmq.Again):  # a busy core asks without a system call
            while True:
                messages.append(decode_to_core(self._inbox.recv(zmq.NOBLOCK)))
        return messages

    def send(self, message: FromCore) -> None:
        self._outbox.send(encode(message))

    def close(self) -> None:
        """Sends what is queued, for at most a second."""
        self._context.destroy(linger=1000)
