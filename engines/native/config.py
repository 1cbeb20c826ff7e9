"""The engine's configuration: one frozen value, checked when it is made; nothing else is read later.

No torch and no msgspec here: the control plane and the offline path read it too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engines.api import LaunchSpec, Local

DEVICES = ("auto", "cpu", "cuda")
DTYPES = ("auto", "float32", "bfloat16", "float16", "int8")


class ConfigError(ValueError):
    """A setting that cannot be used; the message names the field, the reason and what to do."""


@dataclass(frozen=True, slots=True)
class Option:
    """One entry of LaunchSpec.options. Whole numbers have a range; names (str) may have choices; switches are bool."""

    title: str
    description: str
    default: int | bool | str
    minimum: int = 0
    maximum: int = 0
    choices: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        common = {"title": self.title, "description": self.description, "default": self.default}
        if isinstance(self.default, bool):
            return {"type": "boolean", **common}
        if isinstance(self.default, str):
            return {"type": "string", **({"enum": list(self.choices)} if self.choices else {}), **common}
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum, **common}


OPTIONS: dict[str, Option] = {
    "max_batched_tokens": Option(
        "Tokens per step",
        "Budget of one pass, decodes first, then prompts; 0 = 512 on a CPU, 8192 on a GPU",
        0,
        0,
        65536,
    ),
    "block_size": Option("Block size", "Tokens in one block of the KV cache", 16, 8, 128),
    "prefix_cache": Option("Prefix cache", "Keep the KV cache of finished prompts for requests that begin alike", True),
    "swap_space_bytes": Option(
        "Swap space",
        "Bytes of host memory for KV blocks of preempted requests; 0 = none, they are computed again; -1 = 4 GiB "
        "beside a GPU (a quarter of the free memory if that is less), none on a CPU (a larger KV cache does better)",
        -1,
        -1,
        2**50,
    ),
    "host_prefix_cache": Option(
        "Prefix cache in swap space",
        "Keep blocks that the prefix cache has no room for in the swap space, and copy them back on a hit",
        False,
    ),
    "embedding_dtype": Option(
        "Embedding table",
        "int8 keeps the embedding table in 8 bits with a scale per row; a head that is tied to it reads the same bytes",
        "auto",
        choices=("auto", "int8"),
    ),
    "quantized_weights": Option(
        "Quantized weights",
        "kept serves weights in the 4 or 8 bits that the model's files keep them in; dequantized turns them into the "
        "engine's dtype as they are loaded; auto keeps those of a quantized version and dequantizes the blocks of GGUF",
        "auto",
        choices=("auto", "kept", "dequantized"),
    ),
    "kv_cache_dtype": Option(
        "KV cache",
        "fp8 and int8 keep keys and values in 8 bits: twice the tokens in the same memory. int8 has a scale for each "
        "token and head; fp8 has those of the checkpoint, or calibrates them at start; auto is what the checkpoint "
        "says, else the dtype of activations",
        "auto",
        choices=("auto", "fp8", "int8"),
    ),
    "offload_layers": Option(
        "Offloaded layers",
        "Layers whose weights don't stay on the device and are brought in turn while others compute; 0 = none, else 3 "
        "or more (two are on the device at any time), up to all; decode steps then run without graphs",
        0,
        0,
        1000,
    ),
    "offload_to": Option(
        "Offload to",
        "host keeps them in the host's memory, beside a GPU; disk reads them from the model's files in each step, for "
        "models larger than memory",
        "host",
        choices=("host", "disk"),
    ),
    "kv_disk_path": Option(
        "KV disk folder",
        "Absolute path of a folder on the engine's node for KV blocks of the prefix cache, which a restarted engine "
        "finds again; several engines may share it; empty = none",
        "",
    ),
    "kv_disk_bytes": Option(
        "KV disk size",
        "Bytes that files in that folder may take, the least recently used deleted first; 0 = a tenth of the disk, at "
        "most 64 GiB",
        0,
        0,
        2**50,
    ),
    "policy": Option(
        "Policy",
        "Order of one team's waiting requests: fcfs (by arrival), length_window (short prompts of one window first), "
        "or one that a plugin adds",
        "fcfs",
    ),
    "policy_window_ms": Option("Policy window", "Milliseconds that length_window looks over", 50, 1, 60_000),
    "target_tpot_ms": Option(
        "Target TPOT",
        "Milliseconds between two tokens of a stream that prompts beside it should not exceed: a step carries as much "
        "prefill as fits, by measured times; 0 = no target, prompts take the whole budget",
        0,
        0,
        60_000,
    ),
    "speculation": Option(
        "Speculation",
        "Several tokens in one pass, where guesses of what follows pay; the answers are the same. auto guesses from "
        "what was said before (and with the draft model, if one is given), off says one token a pass; or names joined "
        "by +: lookahead, ngram, draft, eagle3, medusa, or a plugin's",
        "auto",
    ),
    "strict": Option(
        "Strict mode",
        "The same tokens to the last bit alone, in any batch, cached or preempted, at some cost of speed",
        False,
    ),
    "threads": Option("CPU threads", "Threads that compute; 0 takes every core that the process may use", 0, 0, 512),
}

SERVE_OPTIONS: dict[str, Option] = {
    "max_queued": Option("Queue", "Requests that wait or run at once; more are refused with 503", 1024, 1, 1_000_000),
    "queue_timeout_s": Option("Queue time-out", "Seconds for a request to be begun; 0 = no limit", 0, 0, 86_400),
    "first_token_timeout_s": Option(
        "First-token time-out", "Seconds for a request to give its first token; 0 = no limit", 0, 0, 86_400
    ),
    "request_timeout_s": Option("Request time-out", "Seconds for a request to finish; 0 = no limit", 0, 0, 86_400),
    "drain_s": Option("Drain", "Seconds that running requests have to finish when the engine stops", 30, 0, 3600),
    "stall_s": Option("Stall", "Seconds of silence of a busy core until it is restarted; 0 = never", 300, 0, 86_400),
    "max_body_bytes": Option("Body limit", "Bytes of one request's body", 16 * 2**20, 1024, 2**30),
    "tool_parser": Option(
        "Tool calls",
        "How the model writes its calls; auto tells it from the chat template and vocabulary",
        "auto",
        choices=("auto", "none", "hermes", "llama3", "mistral", "pythonic"),
    ),
    "reasoning_parser": Option(
        "Reasoning",
        "Tags around the model's reasoning: think is <think>, seed <seed:think>, mistral [THINK]; none leaves it in "
        "the answer",
        "auto",
        choices=("auto", "none", "think", "mistral", "seed"),
    ),
}
"""Options of the API process (`engines.native.serve.options`); the core does not see them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """paths: file name → absolute path; digests: file name → its sha256, where known. Zeros mean: the engine decides
    (see `engines.native.memory`)."""

    format: str
    paths: Mapping[str, str]
    digests: Mapping[str, str] = field(default_factory=dict)
    device: str = "auto"
    dtype: str = "auto"
    max_model_len: int = 0  # tokens
    max_num_seqs: int = 0
    kv_cache_bytes: int = 0
    max_batched_tokens: int = 0
    block_size: int = 16  # tokens
    prefix_cache: bool = True
    swap_space_bytes: int = -1
    host_prefix_cache: bool = False
    kv_disk_path: str = ""
    kv_disk_bytes: int = 0
    embedding_dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    quantized_weights: str = "auto"
    offload_layers: int = 0
    offload_to: str = "host"
    policy: str = "fcfs"
    policy_window_ms: int = 50
    target_tpot_ms: int = 0
    threads: int = 0
    strict: bool = False
    speculation: str = "auto"
    draft_format: str = ""  # of the files of a draft model or head; "" = none
    draft_paths: Mapping[str, str] = field(default_factory=dict)
    ops: str = ""  # name in engines.native.ops.registry; "" = the device's own

    def __post_init__(self) -> None:
        _one_of("format", self.format, ("gguf", "safetensors"))
        _one_of("device", self.device, DEVICES)
        _one_of("dtype", self.dtype, DTYPES)
        if self.draft_format or self.draft_paths:
            _one_of("draft.format", self.draft_format, ("gguf", "safetensors"))
        if self.strict and self.offload_layers:
            raise ConfigError("strict is true, but offloaded layers have other products; set offload_layers to 0")
        for name in ("max_model_len", "max_num_seqs", "kv_cache_bytes"):
            if getattr(self, name) < 0:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}; give a positive number, or 0 to let the engine decide"
                )
        for name, option in OPTIONS.items():
            check_option(name, option, getattr(self, name))
        if self.kv_disk_path and not os.path.isabs(self.kv_disk_path):
            raise ConfigError(f"kv_disk_path is {self.kv_disk_path!r}; give an absolute path")
        if self.kv_disk_path and not self.prefix_cache:
            raise ConfigError("kv_disk_path is given, but prefix_cache is false, which it is a part of; set it to true")

    @property
    def cores(self) -> int:
        """Threads that compute."""
        return self.threads or len(os.sched_getaffinity(0))


def from_launch(spec: LaunchSpec, local: Local) -> EngineConfig:
    """Raises ConfigError, naming the field of the spec."""
    known = {**OPTIONS, **SERVE_OPTIONS}
    for name in spec.options:
        if name not in known:
            raise ConfigError(f"options.{name} is not a setting of the native engine; it has {', '.join(known)}")
    draft = spec.draft
    asked = (("files", spec.files, local.paths), ("draft.files", draft.files if draft else [], local.draft_paths))
    for field_name, files, paths in asked:
        if missing := [file.name for file in files if file.name not in paths]:
            raise ConfigError(f"{field_name}: {', '.join(missing)} have no path on this node")
    return EngineConfig(
        format=spec.format,
        paths=dict(local.paths),
        digests={file.name: file.sha256 for file in spec.files if file.sha256},
        device=spec.device,
        dtype=spec.dtype,
        max_model_len=spec.max_model_len,
        max_num_seqs=spec.max_num_seqs,
        kv_cache_bytes=spec.kv_cache_bytes,
        draft_format=draft.format if draft else "",
        draft_paths=dict(local.draft_paths) if draft else {},
        **{name: value for name, value in spec.options.items() if name in OPTIONS},
    )


def options_schema() -> dict[str, Any]:
    """JSON Schema of LaunchSpec.options."""
    properties = {name: option.schema() for name, option in {**OPTIONS, **SERVE_OPTIONS}.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name} is {value!r}; it can be {', '.join(allowed)}")


def check_option(name: str, option: Option, value: Any) -> None:
    if isinstance(option.default, bool):
        if not isinstance(value, bool):
            raise ConfigError(f"{name} is {value!r}; it can be true or false")
    elif isinstance(option.default, str):
        if not isinstance(value, str):
            raise ConfigError(f"{name} is {value!r}; it is a name, in quotes")
        if option.choices:
            _one_of(name, value, option.choices)
    elif isinstance(value, bool) or not isinstance(value, int) or not option.minimum <= value <= option.maximum:
        raise ConfigError(f"{name} is {value!r}; it is a whole number from {option.minimum} to {option.maximum}")
