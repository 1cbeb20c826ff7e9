"""A recipe, as a person chooses it: one scheme and its options, checked field by field. No torch."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from engines.protocol import ChildError
from plugins.quantization import qat_options
from plugins.quantization.schemes import SCHEMES, Scheme

BUILT_IN = Path(__file__).with_name("default_calibration.jsonl")
"""Questions with answers, worked problems, scenes of Shakespeare, code and prose: docs/quantization.md has sources and
licences. Nothing of what quality is measured on."""
HEAD = "lm_head"
MIN_ROWS, MIN_TOKENS = 32, 32
GROUPS = (128, 64, 32)
"""Tried in this order where the recipe leaves the group size open."""


@dataclass(frozen=True, slots=True)
class Problem:
    """field: of the recipe. hint: what to do."""

    field: str
    reason: str
    hint: str = ""

    def error(self) -> ChildError:
        return ChildError("bad_recipe", f"{self.field}: {self.reason}", self.hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """algorithm, kv, embedding: "" = the scheme's own. group_size: inputs that share a scale; 0 = the largest of GROUPS
    that fits. damping: share of the Hessian's mean diagonal that is added to it. scale_search: of GPTQ and AWQ, in the
    native back end. alpha: share of an activation's range that SmoothQuant moves into the weights. keep: layers that
    stay in 16 bits: names, patterns with *, or "re:…". on_fallback: "record" or "fail", where a layer can't be done as
    asked. budget_bytes: of all weights (mixed). samples, tokens: rows of calibration data and tokens of each. dtype: of
    what stays in 16 bits; "auto" = as it is. qat_…: of the back end qat (qat_options.PROPERTIES)."""

    scheme: str
    algorithm: str = ""
    backend: str = "native"
    group_size: int = 0
    damping: float = 0.01
    act_order: bool = True
    scale_search: bool = True
    alpha: float = 0.5
    keep: tuple[str, ...] = (HEAD,)
    kv: str = ""
    embedding: str = ""
    on_fallback: str = "record"
    budget_bytes: int = 0
    seed: int = 0
    samples: int = 128
    tokens: int = 512
    dtype: str = "auto"
    qat_train: str = "full"
    qat_steps: int = 200
    qat_rows: int = 4
    qat_learning_rate: float = 1e-4
    qat_rank: int = 16
    qat_temperature: float = 1.0
    qat_hidden: float = 0.0
    qat_precision: str = "auto"
    qat_recompute: bool = False

    @property
    def about(self) -> Scheme:
        return SCHEMES[self.scheme]

    @property
    def method(self) -> str:
        return self.algorithm or self.about.algorithms[0]

    @property
    def kv_format(self) -> str:
        """ "none", "fp8" or "int8"."""
        return self.kv or {"kv_fp8": "fp8", "kv_int8": "int8"}.get(self.scheme, "none")

    @property
    def embedding_format(self) -> str:
        return self.embedding or ("int8" if self.scheme == "embedding_int8" else "none")

    @property
    def quantizes_weights(self) -> bool:
        return self.about.weights != "unchanged"

    @property
    def needs_data(self) -> bool:
        always = self.scheme in ("fp8_static", "mixed") or self.backend == "qat"
        return always or self.kv_format == "fp8" or (self.quantizes_weights and self.method != "rtn")


_PROPERTIES: dict[str, dict[str, Any]] = {
    "algorithm": {
        "title": "Algorithm",
        "description": "How the rounded weights are found; empty: the scheme's own.",
        "enum": ["", "rtn", "gptq", "awq", "smoothquant", "smoothquant_gptq", "autoround"],
        "default": "",
    },
    "backend": {
        "title": "Back end",
        "description": "native needs nothing more. llm_compressor makes its own Python environment on first use; "
        "a job of it that is cut off begins anew. "
        "qat begins with what native makes and trains it to answer as the model does; it makes an environment, too.",
        "enum": ["native", "llm_compressor", "qat"],
        "default": "native",
    },
    "group_size": {
        "title": "Group size",
        "description": "Inputs that share a scale; 0: the largest of 128, 64, 32 that divides the model's layers.",
        "type": "integer",
        "minimum": 0,
        "maximum": 1024,
        "default": 0,
    },
    "damping": {
        "title": "Damping",
        "description": "Share of the Hessian's mean diagonal that is added to it; raised by itself if it must be.",
        "type": "number",
        "minimum": 0.0001,
        "maximum": 1,
        "default": 0.01,
    },
    "act_order": {
        "title": "Act-order",
        "description": "Rounds the inputs with the largest activations first. Costs nothing when the model runs.",
        "type": "boolean",
        "default": True,
    },
    "scale_search": {
        "title": "Search for the scales",
        "description": "Tries smaller ranges for each group and keeps what loses least. Off: the greatest weight's.",
        "type": "boolean",
        "default": True,
    },
    "alpha": {
        "title": "SmoothQuant strength",
        "description": "Share of an activation's range that moves into the weights.",
        "type": "number",
        "minimum": 0,
        "maximum": 1,
        "default": 0.5,
    },
    "keep": {
        "title": "Layers that stay in 16 bits",
        "description": "Names, patterns with *, or re: and a regular expression.",
        "type": "array",
        "items": {"type": "string", "minLength": 1},
        "maxItems": 1000,
        "default": [HEAD],
    },
    "kv": {
        "title": "KV cache",
        "description": "Beside the scheme; empty: the scheme's own.",
        "enum": ["", "none", "fp8", "int8"],
        "default": "",
    },
    "embedding": {
        "title": "Embedding",
        "description": "Beside the scheme; empty: the scheme's own.",
        "enum": ["", "none", "int8"],
        "default": "",
    },
    "on_fallback": {
        "title": "Where a layer can't be done as asked",
        "description": "record: it is done more simply and named in the report. fail: the job ends with its name.",
        "enum": ["record", "fail"],
        "default": "record",
    },
    "budget_bytes": {
        "title": "Bytes for all weights",
        "description": "Of scheme mixed; 0: halfway between 4 and 8 bits.",
        "type": "integer",
        "minimum": 0,
        "default": 0,
    },
    "seed": {"title": "Seed", "description": "Of the choice of rows.", "type": "integer", "minimum": 0, "default": 0},
    "samples": {
        "title": "Calibration rows",
        "type": "integer",
        "minimum": MIN_ROWS,
        "maximum": 4096,
        "default": 128,
    },
    "tokens": {
        "title": "Tokens of a row",
        "type": "integer",
        "minimum": MIN_TOKENS,
        "maximum": 8192,
        "default": 512,
    },
    "dtype": {
        "title": "Type of what is not quantized",
        "enum": ["auto", "bfloat16", "float16", "float32"],
        "default": "auto",
    },
    **qat_options.PROPERTIES,
}


def spec_schema() -> dict[str, Any]:
    """JSON Schema of a recipe, for a form and for the check before a job is queued."""
    names = [{"const": scheme.name, "title": scheme.label} for scheme in SCHEMES.values()]
    scheme = {"title": "Scheme", "type": "string", "oneOf": names}
    return {
        "type": "object",
        "properties": {"scheme": scheme, **_PROPERTIES},
        "required": ["scheme"],
        "additionalProperties": False,
    }


def options_schema(scheme: Scheme) -> dict[str, Any]:
    """JSON Schema of the options that have a meaning for `scheme`, its name left out."""
    names = scheme.options
    properties = {name: dict(_PROPERTIES[name]) for name in _PROPERTIES if name in names}
    properties["algorithm"]["enum"] = ["", *scheme.algorithms]
    properties["backend"]["enum"] = list(scheme.backends)
    return {"type": "object", "properties": properties, "additionalProperties": False}


def parse(recipe: dict[str, Any]) -> Options:
    """Raises ChildError("bad_recipe") naming the field."""
    for name in recipe:
        if name != "scheme" and name not in _PROPERTIES:
            near = difflib.get_close_matches(name, _PROPERTIES, 1)
            raise Problem(name, "there is no such option", f"Did you mean {near[0]}?" if near else "").error()
    try:
        options = msgspec.convert(recipe, Options, strict=True)
    except msgspec.ValidationError as error:
        where = re.search(r"`\$\.?(.*)`", str(error))
        raise Problem(where[1] if where and where[1] else "scheme", str(error).split(" - at")[0]).error() from error
    found = _wrong_values(options) or _wrong_combination(options)
    if found is not None:
        raise found.error()
    return options


def _wrong_values(options: Options) -> Problem | None:
    if options.scheme not in SCHEMES:
        return Problem("scheme", f"{options.scheme!r} is not known", f"Choose one of {', '.join(SCHEMES)}.")
    for name, about in _PROPERTIES.items():
        value = getattr(options, name)
        if "enum" in about and value not in about["enum"]:
            known = ", ".join(repr(one) for one in about["enum"])
            return Problem(name, f"{value!r} is not known", f"Choose one of {known}.")
        if "minimum" in about and not about["minimum"] <= value <= about.get("maximum", value):
            limits = f"at least {about['minimum']:,}"
            limits += f" and at most {about['maximum']:,}" if "maximum" in about else ""
            return Problem(name, f"it is {value:,}", f"Give {limits}.")
    return None


def _wrong_combination(options: Options) -> Problem | None:
    scheme = options.about
    if options.algorithm and options.algorithm not in scheme.algorithms:
        known = ", ".join(scheme.algorithms)
        return Problem("algorithm", f"{scheme.name} is not made by {options.algorithm}", f"Choose one of {known}.")
    if options.backend not in scheme.backends:
        return Problem(
            "backend", f"{options.backend} does not make {scheme.name}", f"Choose {' or '.join(scheme.backends)}."
        )
    if options.method == "autoround" and options.backend != "llm_compressor":
        return Problem("algorithm", "autoround is llm_compressor's", "Set backend to llm_compressor, or choose gptq.")
    if options.backend == "llm_compressor" and (options.kv_format == "int8" or options.embedding_format != "none"):
        return Problem("backend", "llm_compressor makes no INT8 KV cache or embedding here", "Choose native.")
    if options.group_size and not scheme.grouped:
        return Problem("group_size", f"{scheme.name} has no groups", "Leave it out.")
    if options.group_size and options.group_size % 8:
        return Problem("group_size", f"it is {options.group_size}, no multiple of 8", "Choose 32, 64 or 128.")
    if options.budget_bytes and scheme.name != "mixed":
        return Problem("budget_bytes", f"{scheme.name} has a fixed size", "Leave it out, or choose the scheme mixed.")
    return _wrong_training(options)


def _wrong_training(options: Options) -> Problem | None:
    if options.backend != "qat":
        for name, about in qat_options.PROPERTIES.items():
            if getattr(options, name) != about["default"]:
                return Problem(name, "it is of the back end qat", "Set backend to qat, or leave it out.")
        return None
    if options.kv_format == "fp8":
        hint = "Choose int8, whose scales are found while the model runs."
        return Problem("kv", "scales of an FP8 cache are those of the weights before the training", hint)
    if options.embedding_format != "none":
        return Problem("embedding", "qat does not train the embedding", "Leave it out, or choose the back end native.")
    if options.qat_train != "lora" and options.qat_rank != qat_options.PROPERTIES["qat_rank"]["default"]:
        return Problem("qat_rank", f"{options.qat_train} has no rank", "Leave it out, or set qat_train to lora.")
    needed = qat_options.least_rows(options.tokens)
    if options.samples < needed:
        reason = f"{options.samples} rows of {options.tokens} tokens are too few to train on some and measure by others"
        hint = f"Ask for at least {needed}: {qat_options.LEAST_TOKENS:,} tokens are kept to measure by."
        return Problem("samples", reason, hint)
    trained = options.samples - qat_options.held_out(options.samples, options.tokens)
    if options.qat_rows > trained:
        reason = f"it is {options.qat_rows}, and {trained} of the {options.samples} rows are trained on"
        return Problem("qat_rows", reason, "Take fewer, or ask for more calibration rows.")
    return None


def problems(recipe: dict[str, Any], model: dict[str, Any], tensor_parallel: int = 1) -> list[Problem]:
    """What keeps `recipe` from being made of a model with these numbers (engines.api.ModelShape), served by so many
    ranks. Numbers that are unknown (0) are not judged."""
    try:
        options = parse(recipe)
    except ChildError as error:
        field, _, reason = error.message.partition(": ")
        return [Problem(field, reason, error.hint)]
    if model.get("task", "generate") != "generate":
        return [Problem("scheme", "the model makes vectors or scores", "Choose a model that generates.")]
    width = model["heads"] * model["head_dim"]
    widths = {"hidden": model["hidden"], "o_proj": width, "down_proj": model["ffn"]}
    inputs = {name: value for name, value in widths.items() if value}
    found = _uneven(inputs, tensor_parallel)
    if found is None and options.about.grouped:
        found = _group_problem(options.group_size, inputs, tensor_parallel)
    if found is None and options.scheme == "fp8_block" and tensor_parallel > 1:
        found = _block_problem(model, inputs, tensor_parallel)
    too_long = context_problem(options, model.get("context_length", 0))
    return [each for each in (found, too_long) if each is not None]


def context_problem(options: Options, context: int) -> Problem | None:
    """context: tokens that the model was made for, 0 = unknown. Beyond them its activations say nothing."""
    if not context or not options.needs_data or options.tokens <= context:
        return None
    return Problem(
        "tokens", f"rows of {options.tokens:,}: the model's context is {context:,}", f"Give at most {context:,}."
    )


def group_for(inputs: Iterable[int], tensor_parallel: int = 1) -> int:
    """The largest of GROUPS that divides every layer's inputs, or 0."""
    shards = [size // tensor_parallel for size in inputs]
    return next((group for group in GROUPS if all(shard % group == 0 for shard in shards)), 0)


def _shards(inputs: dict[str, int], ranks: int) -> dict[str, int]:
    """Inputs that one rank has: o_proj and down_proj are cut along them."""
    return {name: size if name == "hidden" else size // ranks for name, size in inputs.items()}


def _uneven(inputs: dict[str, int], ranks: int) -> Problem | None:
    for name, size in inputs.items():
        if name != "hidden" and size % ranks:
            return Problem("tensor_parallel", f"{name} has {size:,} inputs, which {ranks} ranks don't share evenly")
    return None


def _group_problem(group: int, inputs: dict[str, int], ranks: int) -> Problem | None:
    shards = _shards(inputs, ranks)
    fits = [each for each in (256, 192, 128, 96, 64, 32, 16) if all(shard % each == 0 for shard in shards.values())]
    hint = (
        f"Groups of {', '.join(map(str, fits[:4]))} divide all layers." if fits else "Choose a scheme without groups."
    )
    if not group:
        return None if group_for(shards.values()) else Problem("group_size", "no usual group divides all layers", hint)
    for name, shard in shards.items():
        if shard % group:
            of = (
                f"{inputs[name]:,} / {ranks} ranks = {shard:,} inputs" if shard != inputs[name] else f"{shard:,} inputs"
            )
            return Problem("group_size", f"{group} does not divide {name}: {of}", hint)
    return None


def _block_problem(model: dict[str, Any], inputs: dict[str, int], ranks: int) -> Problem | None:
    kv = model["kv_heads"] * model["head_dim"]
    cut = {name: size for name, size in inputs.items() if name != "hidden"} | {"k_proj": kv}
    for name, size in cut.items():
        if size // ranks % 128:
            return Problem(
                "scheme",
                f"blocks of 128 do not divide {name} on {ranks} ranks: {size:,} / {ranks} = {size // ranks:,}",
                "Choose fp8_dynamic, or other ranks.",
            )
    return None


PRODUCT = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "gate_up", "up": "gate_up"}
"""Part of a layer → the product that it is computed in; others are their own."""


def product(ours: str) -> str:
    """A report's name of what the engine's "layers.3.q" is a part of: "layers.3.qkv"."""
    layer, _, part = ours.rpartition(".")
    return f"{layer}.{PRODUCT.get(part, part)}"


def kept(patterns: Sequence[str], modules: Sequence[str], ours: Mapping[str, str] | None = None) -> frozenset[str]:
    """The modules that `keep` names. ours: module → the engine's name; with it, names of a report's rows
    ("layers.3.qkv") are taken, too. Raises ChildError("bad_recipe") for a pattern that names none, with those that
    are close; the head's name is always taken, since a tied head is no module of its own."""
    found: set[str] = set()
    told = {name: product(each) for name, each in (ours or {}).items()}
    for place, pattern in enumerate(patterns):
        matched = [name for name in modules if _matches(pattern, name, place) or _is_in(told.get(name, ""), pattern)]
        if not matched and pattern != HEAD:
            raise Problem(f"keep[{place}]", f"no layer is called {pattern!r}", _close(pattern, modules)).error()
        found.update(matched)
    return frozenset(found)


def _is_in(product: str, pattern: str) -> bool:
    return product == pattern or product.startswith(f"{pattern}.")


def _matches(pattern: str, name: str, place: int) -> bool:
    if not pattern.startswith("re:"):
        return name == pattern or name.startswith(f"{pattern}.") or fnmatch.fnmatchcase(name, pattern)
    try:
        return re.match(pattern[3:], name) is not None
    except re.error as error:
        raise Problem(f"keep[{place}]", f"{pattern[3:]!r} is no regular expression: {error}").error() from error


def _close(pattern: str, modules: Sequence[str]) -> str:
    near = difflib.get_close_matches(pattern, modules, 3, 0.5)
    return f"Close are {', '.join(near)}." if near else f"Layers are called as {modules[0]}."
