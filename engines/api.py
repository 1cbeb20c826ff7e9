"""The engine contract: what the control plane needs to know of any engine.

An engine is a class registered under the entry-point group `tursiops.engines`, or built in below. The control
plane never imports an engine's own modules: it asks this contract for a command to run, for what the engine can
do, and for the memory that a model needs.

    LaunchSpec   what to serve; stored with a revision, so it names files by digest, never by path
    RunDir       one folder on a node per instance: spec.json in, state.json and engine.log out

The life of an instance:
    1. the node makes the run folder (mode 0700) and writes `spec.json` (mode 0600): LaunchSpec + Local
    2. it starts `Engine.command(run_dir)` in a session of its own, with no secret in argv or environment
    3. the engine writes `state.json` at each change of phase (atomic replace) and answers `GET /health`
    4. SIGTERM drains: no new requests, running ones finish within `drain_s`, then exit 0
"""

from __future__ import annotations

import enum
import importlib
import os
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from engines.protocol import PROTOCOL_VERSION, Channel, ChildError, read_spec
from engines.shards import shard_refusals

__all__ = [
    "API_VERSION",
    "PROTOCOL_VERSION",
    "AddsTokens",
    "Capabilities",
    "Channel",
    "ChildError",
    "Combination",
    "ComparesVersions",
    "Draft",
    "DtypeCapacity",
    "Engine",
    "EngineState",
    "Fit",
    "LaunchSpec",
    "Local",
    "MeasuresVersions",
    "ModelFile",
    "ModelShape",
    "Phase",
    "Role",
    "RunDir",
    "TellsCapacity",
    "engine_names",
    "get_engine",
    "read_spec",
    "shard_refusals",
    "size_text",
]

API_VERSION = 2
"""Version of LaunchSpec and EngineState. This release reads its own and the previous one. 2 added the draft."""


class Role(enum.StrEnum):
    UNIFIED = "unified"
    PREFILL = "prefill"
    DECODE = "decode"


class Phase(enum.StrEnum):
    """Phases that an engine reports of itself. The control plane's instance states are its own."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"
    STOPPED = "stopped"


class ModelFile(msgspec.Struct, frozen=True):
    name: str
    sha256: str
    size: int  # bytes


class ModelShape(msgspec.Struct, frozen=True):
    """The numbers that memory and speed follow from. Unknown ones are 0."""

    architecture: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context_length: int
    parameters: int
    tied_embeddings: bool = False
    sliding_window: int = 0  # tokens; 0 = none
    kv_values: int = 0  # in the KV cache, of a token, in all layers; 0 = 2 × layers × kv_heads × head_dim
    quantized_parameters: int = 0  # of them in linear layers that the files keep in 4 or 8 bits
    quantized_bytes: int = 0  # that those take in the files, scales and all
    task: str = "generate"  # | "embed" (a vector per text) | "score" (a number per pair of texts) | a head: "eagle3",
    # "medusa"; then hidden and vocab are those of the model that it was trained for


class Draft(msgspec.Struct, frozen=True):
    """Another model's files, or a head's, that the engine guesses tokens with. shape: for estimates."""

    files: list[ModelFile]
    format: str  # "gguf" | "safetensors"
    shape: ModelShape | None = None


class LaunchSpec(msgspec.Struct, frozen=True):
    """What to serve. Free of secrets and of absolute paths."""

    instance_id: str
    served_name: str
    files: list[ModelFile]
    format: str  # "gguf" | "safetensors"
    version: int = API_VERSION
    engine: str = "native"
    role: Role = Role.UNIFIED
    device: str = "auto"  # "auto" | "cpu" | "cuda"
    gpu_indices: list[int] = []
    dtype: str = "auto"  # "auto" | "float32" | "bfloat16" | "float16" | "int8" (dynamic, CPU)
    max_model_len: int = 0  # tokens; 0 = the model's own context length
    max_num_seqs: int = 0  # concurrent requests; 0 = the engine's default
    kv_cache_bytes: int = 0  # 0 = the engine decides
    options: dict[str, Any] = {}  # the engine's own settings, checked against Engine.options_schema()
    draft: Draft | None = None


class Local(msgspec.Struct, frozen=True):
    """What only the node knows. Stays in the run folder."""

    paths: dict[str, str]  # file name → absolute path
    host: str
    port: int  # 0 = choose a free one
    token: str  # bearer token that every request must carry
    epoch: int  # rises with each start of this instance; old processes are fenced by it
    draft_paths: dict[str, str] = {}  # of LaunchSpec.draft, as `paths`
    cache_dir: str = ""  # absolute; there for engines of this deployment and version, several at once, to keep what
    # makes the next start warm. It may be deleted while none runs; "": nothing outlives the run folder


class EngineState(msgspec.Struct, frozen=True):
    """state.json, written by the engine."""

    instance_id: str
    pid: int
    pid_start_time: float  # seconds since boot-independent epoch, as psutil.Process.create_time() gives it
    epoch: int
    phase: Phase
    version: int = API_VERSION
    host: str = ""
    port: int = 0
    progress: float = 0.0  # 0…1 while loading
    reason: str = ""  # one sentence
    error_code: str = ""
    started_at: float = 0.0  # unix time
    updated_at: float = 0.0
    facts: dict[str, Any] = {}  # dtype, device, kv_blocks, max_model_len, … as effective


class Capabilities(msgspec.Struct, frozen=True):
    formats: list[str]
    architectures: list[str]
    devices: list[str]
    dtypes: list[str]
    roles: list[Role]
    features: list[str]
    proposers: list[str] = []  # names that option `speculation` takes; empty: the engine does not speculate
    drafting: list[str] = []  # of them those that need LaunchSpec.draft


class Fit(msgspec.Struct, frozen=True):
    """Memory of one instance, bytes, and whether it fits in `available`."""

    weights: int
    kv_cache: int
    activations: int
    overhead: int
    available: int
    fits: bool
    kv_tokens: int  # tokens that the KV cache holds
    reason: str  # one sentence: why it fits or by how much it does not
    suggestions: list[str] = []
    host: int = 0  # bytes of the host's memory beside a GPU; not in `total`
    verification: int = 0  # that passes which check guesses take beside activations

    @property
    def total(self) -> int:
        return self.weights + self.kv_cache + self.activations + self.verification + self.overhead


class Combination(msgspec.Struct, frozen=True):
    """`max_num_seqs` requests of `max_model_len` tokens each, all of full length at once."""

    max_model_len: int  # tokens; 0 = no length fits
    max_num_seqs: int  # 0 = not one request fits
    fits: bool
    total: int  # bytes that it needs; where nothing fits, of the least
    kv_cache_bytes: int  # of it; the setting that makes room for them all
    reason: str  # one sentence: why not; "" where it fits


class DtypeCapacity(msgspec.Struct, frozen=True):
    """What of a model in one dtype fits in a device's memory."""

    dtype: str
    fits: bool  # at least one short request
    reason: str  # one sentence: why not, or what limits it; "" where nothing does
    weights: int  # bytes
    max_model_len: int  # tokens of one request alone; 0 = none
    by_context: list[Combination]  # for each context asked, the largest concurrency
    by_concurrency: list[Combination]  # for each concurrency asked, the longest context
    combinations: list[Combination]  # each context with each concurrency


class RunDir:
    """Files of one instance on its node."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spec_path = path / "spec.json"
        self.state_path = path / "state.json"
        self.log_path = path / "engine.log"

    def write_spec(self, spec: LaunchSpec, local: Local) -> None:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        body = {"spec": msgspec.to_builtins(spec), "local": msgspec.to_builtins(local)}
        _replace(self.spec_path, msgspec.json.encode(body))

    def read_spec(self) -> tuple[LaunchSpec, Local]:
        """Raises FileNotFoundError, or ValueError if the file is not a spec of this or the previous version."""
        body = msgspec.json.decode(self.spec_path.read_bytes())
        version = body["spec"].get("version", 0)
        if version not in (API_VERSION, API_VERSION - 1):
            raise ValueError(f"spec.json has version {version}; this engine reads {API_VERSION - 1} and {API_VERSION}")
        return msgspec.convert(body["spec"], LaunchSpec), msgspec.convert(body["local"], Local)

    def write_state(self, state: EngineState) -> None:
        _replace(self.state_path, msgspec.json.encode(state))

    def read_state(self) -> EngineState | None:
        """The engine's last word, or None if it has said nothing readable."""
        try:
            return msgspec.json.decode(self.state_path.read_bytes(), type=EngineState)
        except (FileNotFoundError, msgspec.DecodeError, msgspec.ValidationError):
            return None


def _replace(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    os.replace(part, path)


class Engine(Protocol):
    """What an engine must answer. Implementations import nothing heavy: they run inside the control plane."""

    name: str
    label: str

    def capabilities(self) -> Capabilities: ...

    def options_schema(self) -> dict[str, Any]:
        """JSON Schema of LaunchSpec.options, with defaults and titles; forms are made from it."""
        ...

    def command(self, run_dir: Path) -> list[str]:
        """argv that serves the spec in `run_dir`. Holds no secret."""
        ...

    def inspect_command(self) -> list[str]:
        """argv of a child that speaks engines.protocol: spec {"paths": {name: path}, "format": …} → report of
        ModelShape fields, tokenizer, chat template, licence, dtype, quantization; or an error naming tensor or key."""
        ...

    def fit(self, shape: ModelShape, spec: LaunchSpec, weights_bytes: int, available: int) -> Fit:
        """Memory need of `spec`, in bytes, against `available` bytes on the chosen device."""
        ...


@runtime_checkable
class AddsTokens(Protocol):
    """An engine that can grow a model's vocabulary by domain tokens."""

    def add_tokens_command(self) -> list[str]:
        """argv of a child that speaks engines.protocol; its spec and report are in docs/domain-tokens.md."""
        ...


@runtime_checkable
class ComparesVersions(Protocol):
    """An engine that can look into two versions of a model layer by layer."""

    def compare_command(self) -> list[str]:
        """argv of a child that speaks engines.protocol: spec {"reference", "other": {"format", "paths", "dtype"},
        "device", "text"} → report of `engines.native.compare.Comparison`'s fields, or an error."""
        ...


@runtime_checkable
class MeasuresVersions(Protocol):
    """An engine that can measure a version by itself: quality on a text, speed of one request, memory."""

    def measure_command(self) -> list[str]:
        """argv of a child that speaks engines.protocol: spec {"model": {"format", "paths", "dtype"}, "device", "text",
        "options", "keep", "reference"} → report of `engines.native.measure.Measured`'s fields, or an error."""
        ...


@runtime_checkable
class TellsCapacity(Protocol):
    """What an engine may answer besides: the combinations that fit. Pure arithmetic, as `Engine.fit`."""

    def capacity(
        self,
        shape: ModelShape,
        spec: LaunchSpec,
        weights_bytes: int,
        available: int,
        *,
        dtypes: Sequence[str],
        contexts: Sequence[int],
        concurrencies: Sequence[int],
    ) -> list[DtypeCapacity]:
        """In the order of `dtypes`. `spec` gives device and options. Raises ValueError, with a sentence, for a model
        that this says nothing of."""
        ...


_BUILT_IN = {"native": "engines.native.contract:NativeEngine"}


def engine_names() -> list[str]:
    """Names of all engines, built in and installed."""
    return sorted({*_BUILT_IN, *(point.name for point in entry_points(group="tursiops.engines"))})


def get_engine(name: str) -> Engine:
    """Raises KeyError, with the names available, for an engine that is not installed."""
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        return getattr(importlib.import_module(module), attribute)()  # type: ignore[no-any-return]
    for point in entry_points(group="tursiops.engines"):
        if point.name == name:
            return point.load()()  # type: ignore[no-any-return]
    raise KeyError(f"no engine named {name!r}; available: {', '.join(engine_names())}")


def size_text(count: int) -> str:
    """Bytes as people read them, in powers of 1,024: the one way to say a size, in sentences as in the console."""
    unit, value = next((unit, count / scale) for unit, scale in _UNITS if count >= scale or scale == 1)
    digits = 0 if unit == "B" or value >= 100 else 2 if unit in ("GiB", "TiB") else 1
    return f"{value:.{digits}f} {unit}"


_UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))
