"""Which tensors of a safetensors file make up one quantized matrix, and whether they are there and of the right form.

Layouts: reference/evaluation.md §3.3; compressed-tensors 0.19 (compressors/pack_quantized, naive_quantized), AutoGPTQ
(qlinear_cuda_old), AutoAWQ (modules/linear/gemm), transformers (integrations/finegrained_fp8). No torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engines.native.loader.errors import BadModel
from engines.native.loader.names import Layout
from engines.native.loader.tensors import TensorInfo
from engines.native.models.config import DecoderConfig
from engines.native.quant.scheme import LinearScheme, QuantConfig, Rule, WeightScheme

Shape = tuple[int, ...]
FLOATS = ("F32", "F16", "BF16")
KEPT_BLOCKS = {
    "Q8_0": WeightScheme(group=32, strategy="group"),
    "Q4_0": WeightScheme(bits=4, group=32, strategy="group"),
    "Q4_1": WeightScheme(bits=4, group=32, strategy="group", symmetric=False),
    "Q4_K": WeightScheme(bits=4, group=32, strategy="group", symmetric=False),
    "Q6_K": WeightScheme(group=16, strategy="group"),
}
"""GGUF's types that are kept quantized → what they are. Asymmetric ones have minima (`offsets`), no zeros."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One quantized matrix of a checkpoint. module: its name in the file; shape: (out, in) of the matrix; parts: kind
    ("weight_packed") → place."""

    module: str
    layout: str
    scheme: LinearScheme
    shape: tuple[int, int]
    parts: dict[str, TensorInfo]

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts.values())

    def info(self) -> TensorInfo:
        """The matrix as one tensor: its shape, its scheme as the type, all its bytes. Where it begins is where its
        largest part does."""
        largest = max(self.parts.values(), key=lambda part: part.nbytes)
        kind = str(self.scheme.weight)
        return TensorInfo(f"{self.module}.weight", self.shape, kind, largest.path, largest.offset, self.nbytes)


@dataclass(frozen=True, slots=True)
class Part:
    """What a layout has of a matrix. shapes: any of them. also: another kind that it may be called."""

    types: tuple[str, ...]
    shapes: tuple[Shape, ...]
    required: bool = True
    also: str = ""


Parts = dict[str, Part]


def stored(module: str, shape: tuple[int, int], rule: Rule, found: Mapping[str, TensorInfo]) -> Stored | None:
    """The matrix `module` of a checkpoint whose configuration has `rule` for it; None where the file has it as floats,
    as checkpoints do with a head or a router that they don't name. Raises BadModel, naming the tensor."""
    plain = found.get(f"{module}.weight")
    if plain is not None and plain.type in FLOATS and f"{module}.weight_scale" not in found:
        return None
    assert rule.scheme is not None
    parts = {}
    for kind, part in LAYOUTS[rule.layout](rule.scheme, shape, module).items():
        info = found.get(f"{module}.{kind}") or found.get(f"{module}.{part.also}")
        if info is None:
            if part.required:
                raise BadModel(
                    "missing_tensor",
                    f"the tensor {module}.{kind} is missing: quantization_config makes {module} "
                    f"{rule.scheme.weight} ({rule.layout})",
                )
            continue
        if info.type not in part.types:
            raise BadModel(
                "unknown_type",
                f"tensor {info.name} has dtype {info.type}; in {rule.layout} it is {' or '.join(part.types)}",
            )
        if info.shape not in part.shapes:
            wanted = " or ".join(str(list(one)) for one in part.shapes)
            raise BadModel(
                "wrong_shape",
                f"tensor {info.name} has shape {list(info.shape)}; {rule.scheme.weight} of a matrix of {list(shape)} "
                f"makes it {wanted}",
            )
        parts[kind] = info
    return Stored(module, rule.layout, rule.scheme, shape, parts)


def of_blocks(info: TensorInfo) -> Stored:
    """A matrix of GGUF in one of the types that are kept."""
    module, scheme = info.name.removesuffix(".weight"), LinearScheme(KEPT_BLOCKS[info.type])
    return Stored(module, "gguf", scheme, (info.shape[0], info.shape[1]), {"weight": info})


def _scale_shapes(weight: WeightScheme, shape: tuple[int, int]) -> tuple[Shape, ...]:
    rows, columns = shape
    if weight.strategy == "tensor":
        return (1,), (), (1, 1)
    if weight.strategy == "channel":
        return (rows, 1), (rows,)
    if weight.block is not None:
        return ((-(-rows // weight.block[0]), -(-columns // weight.block[1])),)
    return ((rows, -(-columns // weight.group)),)


def _inputs(scheme: LinearScheme, also: str = "") -> Parts:
    """Scales of activations that are quantized by the checkpoint's."""
    static = scheme.activations is not None and not scheme.activations.dynamic
    return {"input_scale": Part(FLOATS, ((1,), ()), also=also)} if static else {}


def _packed(scheme: LinearScheme, shape: tuple[int, int], module: str) -> Parts:
    weight, (rows, columns) = scheme.weight, shape
    scales = _scale_shapes(weight, shape)
    parts = {
        "weight_packed": Part(("I32",), ((rows, -(-columns * weight.bits // 32)),)),
        "weight_scale": Part(FLOATS, scales),
        "weight_shape": Part(("I64", "I32"), ((2,),)),
    }
    if not weight.symmetric and weight.strategy in ("group", "channel"):
        parts["weight_zero_point"] = Part(("I32",), ((-(-rows * weight.bits // 32), scales[0][1]),))
    elif not weight.symmetric:
        parts["weight_zero_point"] = Part(("I8",), scales)
    if weight.strategy == "group":
        parts["weight_g_idx"] = Part(("I32",), ((columns,),), required=weight.actorder == "group")
    return parts | _inputs(scheme)


def _plain(scheme: LinearScheme, shape: tuple[int, int], module: str) -> Parts:
    weight = scheme.weight
    scales = _scale_shapes(weight, shape)
    parts = {
        "weight": Part(("F8_E4M3" if weight.kind == "float" else "I8",), (shape,)),
        "weight_scale": Part(FLOATS, scales),
    }
    if not weight.symmetric:
        parts["weight_zero_point"] = Part(("I8",), scales)
    if weight.strategy == "group":
        parts["weight_g_idx"] = Part(("I32",), ((shape[1],),), required=weight.actorder == "group")
    return parts | _inputs(scheme)


def _fp8(scheme: LinearScheme, shape: tuple[int, int], module: str) -> Parts:
    """Scales are called as DeepSeek and transformers do, or as vLLM and AutoFP8."""
    parts = {
        "weight": Part(("F8_E4M3",), (shape,)),
        "weight_scale": Part(FLOATS, _scale_shapes(scheme.weight, shape), also="weight_scale_inv"),
    }
    return parts | _inputs(scheme, also="activation_scale")


def _whole_words(shape: tuple[int, int], per_word: int, module: str, sides: str) -> None:
    for side, size in zip(("out", "in"), shape, strict=True):
        if side in sides and size % per_word:
            raise BadModel(
                "wrong_shape", f"{module}.qweight: {side} is {size}, and its layout packs {per_word} values in a word"
            )


def _gptq(scheme: LinearScheme, shape: tuple[int, int], module: str) -> Parts:
    weight, (rows, columns) = scheme.weight, shape
    per_word = 32 // weight.bits
    _whole_words(shape, per_word, module, "out in")
    groups = 1 if weight.strategy == "channel" else -(-columns // weight.group)
    return {
        "qweight": Part(("I32",), ((columns // per_word, rows),)),
        "qzeros": Part(("I32",), ((groups, rows // per_word),)),
        "scales": Part(FLOATS, ((groups, rows),)),
        "g_idx": Part(("I32",), ((columns,),), required=weight.actorder == "group"),
    }


def _awq(scheme: LinearScheme, shape: tuple[int, int], module: str) -> Parts:
    weight, (rows, columns) = scheme.weight, shape
    _whole_words(shape, 8, module, "out")
    groups = 1 if weight.strategy == "channel" else -(-columns // weight.group)
    return {
        "qweight": Part(("I32",), ((columns, rows // 8),)),
        "qzeros": Part(("I32",), ((groups, rows // 8),)),
        "scales": Part(FLOATS, ((groups, rows),)),
    }


LAYOUTS: dict[str, Callable[[LinearScheme, tuple[int, int], str], Parts]] = {
    "pack-quantized": _packed,
    "int-quantized": _plain,
    "float-quantized": _plain,
    "naive-quantized": _plain,
    "fp8": _fp8,
    "gptq": _gptq,
    "gptq_v2": _gptq,
    "awq": _awq,
}
"""Layout → the parts of a matrix by their kind."""


KvScales = tuple[TensorInfo, TensorInfo]
"""Where the scales of a layer's keys and of its values lie."""


def kv_scales_of(
    quant: QuantConfig, config: DecoderConfig, layout: Layout, found: Mapping[str, TensorInfo]
) -> dict[int, KvScales]:
    """Layer → its scales, of those that have them (`engines.native.kv_cache` measures the others); {} where the
    configuration quantizes no cache. Raises BadModel for one that has keys' or values' alone."""
    if quant.kv is None:
        return {}
    shapes: tuple[Shape, ...] = ((1,), (), (1, 1, 1))
    if quant.kv.strategy == "head":
        shapes = ((config.kv_heads,), (config.kv_heads, 1, 1))
    scales = {}
    for layer in range(config.layers):
        attention = layout.name(f"layers.{layer}.o.weight").rsplit(".", 2)[0]
        keys, values = (_kv_scale(found, attention, which, shapes) for which in ("k", "v"))
        if keys is not None and values is not None:
            scales[layer] = keys, values
        elif keys is not None or values is not None:
            absent = f"{attention}.{'k' if keys is None else 'v'}_scale"
            raise BadModel("missing_tensor", f"the tensor {absent} is missing, and the other one of the pair is there")
    return scales


def _kv_scale(
    found: Mapping[str, TensorInfo], attention: str, which: str, shapes: tuple[Shape, ...]
) -> TensorInfo | None:
    """Under the attention, or as older writers had it, under what makes the keys or values."""
    names = [f"{attention}.{which}_scale", f"{attention}.{which}_proj.{which}_scale"]
    names.append(f"{attention}.{which}_proj.output_scale")
    info = next((found[name] for name in names if name in found), None)
    if info is None:
        return None
    if info.shape not in shapes or info.type not in FLOATS:
        wanted = " or ".join(str(list(shape)) for shape in shapes)
        raise BadModel(
            "wrong_shape",
            f"tensor {info.name} is {info.type} of shape {list(info.shape)}; a float of {wanted} is needed",
        )
    return info


def is_zero(info: TensorInfo) -> bool:
    """Whether all its bytes are."""
    with info.path.open("rb") as file:
        file.seek(info.offset)
        return not any(file.read(info.nbytes))
