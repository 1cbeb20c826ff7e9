"""`quantization_config` of a config.json → QuantConfig: compressed-tensors, AutoGPTQ, AutoAWQ, Hugging Face's fp8.

What the engine can't serve is refused by key and value, with what it can. Sources: compressed-tensors 0.19
(quantization/quant_config.py, utils/match.py), GPTQModel (quantization/config.py), AutoAWQ (models/_config.py),
transformers (quantizers/quantizer_finegrained_fp8.py). No torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from engines.native.loader.errors import BadModel
from engines.native.quant.scheme import (
    ActivationScheme,
    KvScheme,
    LinearScheme,
    QuantConfig,
    Rule,
    WeightScheme,
)

Json = dict[str, Any]
_COMPRESSED = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized")
_ABSENT: tuple[Any, ...] = (None, "", [], {})


def quant_config(config: Json) -> QuantConfig | None:
    """config: the whole config.json. None: its weights are floats. Raises BadModel("unknown_type")."""
    about = config.get("quantization_config") or config.get("compression_config")
    if not about:
        return None
    if not isinstance(about, dict):
        raise BadModel("unknown_type", f"config.json: quantization_config is {about!r:.80}, an object is needed")
    method = about.get("quant_method", "compressed-tensors" if "config_groups" in about else None)
    if method not in METHODS:
        raise _refused("quant_method", method, ", ".join(METHODS))
    return METHODS[method](about)


def _refused(key: str, value: object, supported: str) -> BadModel:
    return BadModel(
        "unknown_type",
        f"config.json: quantization_config.{key} is {repr(value)[:120]}, which is not served",
        f"supported: {supported}",
    )


def _one_of(about: Json, key: str, *allowed: Any, default: Any = None, path: str = "") -> Any:
    value = about.get(key, default)
    if not any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed):
        raise _refused(path + key, value, " or ".join(str(one) for one in allowed))
    return value


def _size(about: Json, key: str, default: object = None, path: str = "") -> int:
    """A group's width; -1: the whole row."""
    value = about.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or (value <= 0 and value != -1):
        raise _refused(path + key, value, "a whole number of inputs, or -1 for all")
    return value


def _names(about: Json, key: str, path: str = "") -> list[str]:
    value = about.get(key) or []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _refused(path + key, value, "a list of names")
    return value


# compressed-tensors


def _compressed_tensors(about: Json) -> QuantConfig:
    for key in ("sparsity_config", "transform_config"):
        value = about.get(key)
        if value not in _ABSENT and not (isinstance(value, dict) and value.get("format") == "dense"):
            raise _refused(key, value, "weights without sparsity or transforms")
    _one_of(about, "quantization_status", "compressed", None)
    groups = about.get("config_groups")
    if not isinstance(groups, dict):
        raise _refused("config_groups", groups, "an object of groups")
    by_target: dict[str, Rule] = {}
    for name, group in groups.items():
        path = f"config_groups.{name}."
        if not isinstance(group, dict):
            raise _refused(f"config_groups.{name}", group, "a group that is written out, with targets and weights")
        rule = _group(group, about.get("format"), path)
        for target in rule.targets:
            _checked_pattern(target, f"{path}targets")
            by_target[target] = Rule((target,), rule.scheme, rule.layout)  # a later group wins, as in the library
    ignore = _names(about, "ignore")
    for target in ignore:
        _checked_pattern(target, "ignore")
    rules = tuple(by_target[target] for target in sorted(by_target))  # its order among patterns
    return QuantConfig("compressed-tensors", rules, tuple(ignore), _kv(about.get("kv_cache_scheme")))


def _checked_pattern(target: str, key: str) -> None:
    if target.startswith("re:"):
        try:
            re.compile(target.removeprefix("re:"))
        except re.error as error:
            raise _refused(key, target, f"a pattern that Python's re takes ({error})") from error


def _group(group: Json, overall: object, path: str) -> Rule:
    targets = tuple(_names(group, "targets", path))
    if not targets:
        raise _refused(f"{path}targets", group.get("targets"), "names, re: patterns or classes of modules")
    if group.get("output_activations") not in _ABSENT:
        raise _refused(
            f"{path}output_activations", group["output_activations"], "none (keys and values: kv_cache_scheme)"
        )
    weights, inputs = group.get("weights"), group.get("input_activations")
    if weights is None:
        if inputs is not None:
            raise _refused(f"{path}weights", None, "weights of 4 or 8 bits wherever activations are quantized")
        return Rule(targets, None, "")
    layout = group.get("format") or overall
    if layout not in _COMPRESSED:
        raise _refused(f"{path}format" if group.get("format") else "format", layout, ", ".join(_COMPRESSED))
    weight = _weight(weights, f"{path}weights.")
    if weight.kind == "float" and layout == "pack-quantized":
        raise _refused(f"{path}weights.type", "float", "int in pack-quantized")
    activations = None if inputs is None else _activations(inputs, f"{path}input_activations.")
    return Rule(targets, LinearScheme(weight, activations), layout)


def _weight(args: Json, path: str) -> WeightScheme:
    kind = _kind(args, path)
    bits = _one_of(args, "num_bits", *((8,) if kind == "float" else (4, 8)), default=8, path=path)
    _one_of(args, "dynamic", False, None, path=path)
    symmetric = bool(
        _one_of(args, "symmetric", *((True,) if kind == "float" else (True, False)), default=True, path=path)
    )
    strategy, group = _strategy(args, path)
    if strategy not in ("tensor", "channel", "group", "block"):
        raise _refused(f"{path}strategy", strategy, "tensor, channel, group, block")
    order = _one_of(args, "actorder", None, False, True, "weight", "static", "group", "dynamic", path=path)
    return WeightScheme(
        kind=kind,
        bits=bits,
        strategy=strategy,
        group=group,
        block=_block(args.get("block_structure"), f"{path}block_structure") if strategy == "block" else None,
        symmetric=symmetric,
        actorder={None: "", False: "", True: "group", "dynamic": "group", "weight": "static"}.get(order, order),
    )


def _activations(args: Json, path: str) -> ActivationScheme:
    kind = _kind(args, path)
    _one_of(args, "num_bits", 8, default=8, path=path)
    _one_of(args, "symmetric", True, default=True, path=path)
    dynamic = bool(_one_of(args, "dynamic", True, False, default=False, path=path))
    strategy, group = _strategy(args, path)
    served = ("token", "tensor", "group") if dynamic else ("tensor",)
    if strategy not in served:
        raise _refused(f"{path}strategy", strategy, f"{', '.join(served)} where dynamic is {dynamic}")
    return ActivationScheme(kind, 8, dynamic, strategy, group)


def _kv(args: Any) -> KvScheme | None:
    if args in _ABSENT:
        return None
    path = "kv_cache_scheme."
    kind = _kind(args, path)
    _one_of(args, "num_bits", 8, default=8, path=path)
    _one_of(args, "symmetric", True, default=True, path=path)
    _one_of(args, "dynamic", False, None, path=path)
    strategy = _one_of(args, "strategy", "tensor", "attn_head", None, path=path)
    return KvScheme(kind, 8, "head" if strategy == "attn_head" else "tensor")


def _kind(args: Any, path: str) -> str:
    if not isinstance(args, dict):
        raise _refused(path.removesuffix("."), args, "an object with num_bits, type and strategy")
    return str(_one_of({"type": str(args.get("type", "int")).lower()}, "type", "int", "float", path=path))


def _strategy(args: Json, path: str) -> tuple[str, int]:
    """(strategy, width of a group or 0); what is not said follows from group_size."""
    size = args.get("group_size")
    strategy = args.get("strategy")
    if size is not None:
        size = _size(args, "group_size", path=path)
    if strategy is None:
        strategy = "tensor" if size is None else "channel" if size == -1 else "group"
    if strategy == "group" and (size is None or size <= 0):
        raise _refused(f"{path}group_size", size, "a positive number with strategy group")
    return str(strategy).lower(), (size or 0) if strategy == "group" else 0


def _block(value: Any, path: str) -> tuple[int, int]:
    sides = (
        [int(one) for one in value.split("x")] if isinstance(value, str) and re.fullmatch(r"\d+x\d+", value) else value
    )
    if not isinstance(sides, list | tuple) or len(sides) != 2 or not all(type(one) is int and one > 0 for one in sides):
        raise _refused(path, value, "[outputs, inputs] of a block, as [128, 128]")
    return sides[0], sides[1]


# AutoGPTQ, GPTQModel


def _gptq(about: Json) -> QuantConfig:
    if about.get("is_marlin_format"):
        raise _refused("is_marlin_format", True, "checkpoints of format gptq or gptq_v2")
    _one_of(about, "pack_dtype", "int32", None)
    key = "checkpoint_format" if "checkpoint_format" in about else "format"
    layout = _one_of(about, key, "gptq", "gptq_v2", default="gptq")
    rules = []
    dynamic = about.get("dynamic") or {}
    if not isinstance(dynamic, dict):
        raise _refused("dynamic", dynamic, "an object: pattern → what is other for the modules it matches")
    for pattern, other in dynamic.items():
        target = "re:" + pattern.removeprefix("-:").removeprefix("+:")
        _checked_pattern(target, f"dynamic.{pattern}")
        if pattern.startswith("-:") or other is False:
            rules.append(Rule((target,), None, layout))
        else:
            path = f"dynamic.{pattern}."
            if not isinstance(other, dict):
                raise _refused(path.removesuffix("."), other, "an object, or false")
            rules.append(Rule((target,), LinearScheme(_gptq_weight(about | other, path)), layout))
    rules.append(Rule(("Linear",), LinearScheme(_gptq_weight(about, "")), layout))
    return QuantConfig("gptq", tuple(rules))


def _gptq_weight(about: Json, path: str) -> WeightScheme:
    bits = _one_of(about, "bits", 4, 8, path=path)
    size = _size(about, "group_size", 128, path)
    symmetric = bool(_one_of(about, "sym", True, False, default=True, path=path))
    ordered = bool(_one_of(about, "desc_act", True, False, default=False, path=path))
    strategy = "channel" if size == -1 else "group"
    order = "group" if ordered and size != -1 else ""
    return WeightScheme("int", bits, strategy, max(size, 0), None, symmetric, order)


# AutoAWQ


def _awq(about: Json) -> QuantConfig:
    bits = _one_of({"bits": about.get("bits", about.get("w_bit", 4))}, "bits", 4)
    size = _size({"group_size": about.get("group_size", about.get("q_group_size", 128))}, "group_size")
    _one_of(about, "zero_point", True, default=True)
    _one_of({"version": str(about.get("version") or about.get("format") or "gemm").lower()}, "version", "gemm")
    strategy = "channel" if size == -1 else "group"
    scheme = LinearScheme(WeightScheme("int", bits, strategy, max(size, 0), symmetric=False))
    kept = tuple(f"re:.*{re.escape(name)}" for name in _names(about, "modules_to_not_convert"))
    return QuantConfig("awq", (Rule(("Linear",), scheme, "awq"),), kept)


# Hugging Face's fp8 (DeepSeek, Qwen)


def _fp8(about: Json) -> QuantConfig:
    _one_of(about, "fmt", "e4m3", "float8_e4m3fn", None)
    if about.get("kv_cache_scheme") not in _ABSENT:
        raise _refused("kv_cache_scheme", about["kv_cache_scheme"], "keys and values in 16 bits with quant_method fp8")
    dynamic = _one_of(about, "activation_scheme", "dynamic", "static", default="dynamic") == "dynamic"
    if about.get("weight_block_size") is not None:
        block = _block(about["weight_block_size"], "weight_block_size")
        weight = WeightScheme("float", 8, "block", block=block)
        if not dynamic:
            raise _refused("activation_scheme", "static", "dynamic with weight_block_size")
        activations = ActivationScheme("float", 8, True, "group", block[1])
    else:
        weight = WeightScheme("float", 8, "tensor")
        activations = ActivationScheme("float", 8, dynamic, "token" if dynamic else "tensor")
    names = _names(about, "modules_to_not_convert") + _names(about, "ignored_layers")
    kept = tuple(f"re:({re.escape(name)}|.*{re.escape(name)}$)" for name in names)
    return QuantConfig("fp8", (Rule(("Linear",), LinearScheme(weight, activations), "fp8"),), kept)


METHODS: dict[str, Callable[[Json], QuantConfig]] = {
    "compressed-tensors": _compressed_tensors,
    "gptq": _gptq,
    "awq": _awq,
    "fp8": _fp8,
}
"""`quant_method` → reader."""
