"""What can be made of a model: each scheme with what it is for, what serves it, and what it may cost. No torch.

Gates and sizes: reference values of published runs (docs/quantization.md has the sources); a gate is what a version
must reach to be offered for deployment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from plugins.quantization.qat_options import PROPERTIES

SM = ("cpu", "sm75", "sm80", "sm86", "sm89", "sm90", "sm100")
"""What a scheme is judged on: this machine's processor, and GPUs by compute capability (T4, A100, A10/RTX 30, L4/L40S/
RTX 40, H100/H200, B200)."""

_EIGHT_BIT = 8 / 16
_GROUPED = (4 + 16 / 128) / 16


@dataclass(frozen=True)
class Gate:
    """perplexity_ratio: at most, of the 16-bit model's by tokens. task_recovery: at least, mean over tasks, 0…1.
    up_to_parameters: of models at most this large; None: of any."""

    perplexity_ratio: float
    task_recovery: float
    up_to_parameters: int | None = None


@dataclass(frozen=True)
class Support:
    """state: "supported", "slow" (it runs, without the gain in speed) or "unsupported"."""

    state: str
    reason: str


@dataclass(frozen=True)
class Scheme:
    """algorithms: how the weights may be found, the default first. grouped: it has a group size. size_factor: bytes of
    the quantized matrices for one in 16 bits, with the default group."""

    name: str
    label: str
    explanation: str
    best_for: str
    weights: str
    activations: str
    algorithms: tuple[str, ...]
    hardware: dict[str, Support]
    gates: tuple[Gate, ...]
    size_factor: float
    kv: str = "16 bits"
    embedding: str = "16 bits"
    grouped: bool = False
    needs_data: bool = True
    backends: tuple[str, ...] = ("native",)
    extra: tuple[str, ...] = field(default=())

    @property
    def options(self) -> tuple[str, ...]:
        """Names of those that have a meaning for it."""
        grouped = ("group_size",) if self.grouped else ()
        return COMMON + self.extra + grouped + (tuple(PROPERTIES) if "qat" in self.backends else ())

    def about(self) -> dict[str, Any]:
        """As plugins.api.Optimizer.schemes() has it, with the names of algorithms and back ends beside."""
        return {
            "name": self.name,
            "label": self.label,
            "explanation": self.explanation,
            "best_for": self.best_for,
            "weights": self.weights,
            "activations": self.activations,
            "kv": self.kv,
            "embedding": self.embedding,
            "needs_data": self.needs_data,
            "algorithms": list(self.algorithms),
            "backends": list(self.backends),
            "options": list(self.options),
            "hardware": {sm: {"state": one.state, "reason": one.reason} for sm, one in self.hardware.items()},
            "gates": [
                {
                    "up_to_parameters": gate.up_to_parameters,
                    "perplexity_ratio": gate.perplexity_ratio,
                    "task_recovery": gate.task_recovery,
                }
                for gate in self.gates
            ],
            "size_factor": round(self.size_factor, 4),
        }


COMMON = ("algorithm", "backend", "keep", "kv", "embedding", "on_fallback", "seed", "samples", "tokens", "dtype")
"""Options that every scheme takes; those of weights have no effect where a scheme leaves weights alone."""


def _hardware(cpu: Support, **of_gpus: Support) -> dict[str, Support]:
    """Of all of SM. What is not named has the state of the next lower one that is."""
    found = {"cpu": cpu, "sm75": Support("unsupported", "The engine's GPU kernels need compute capability 8.0.")}
    last = found["sm75"]
    for sm in SM[2:]:
        last = of_gpus.get(sm, last)
        found[sm] = last
    return found


_FP8_HARDWARE = _hardware(
    Support("slow", "A CPU has no FP8 products: weights are widened when they are loaded, so only the files shrink."),
    sm80=Support("slow", "No FP8 products before compute capability 8.9: weights are widened inside the product."),
    sm89=Support("supported", "FP8 tensor cores."),
)
_INT8_HARDWARE = _hardware(
    Support("supported", "torch's dynamic int8 products."), sm80=Support("supported", "INT8 tensor cores.")
)
_FOUR_BIT_HARDWARE = _hardware(
    Support("slow", "Packed 4-bit products of torch: small in memory, no faster than int8."),
    sm80=Support("supported", "4 bits are unpacked inside the product; made for small batches."),
)
_EIGHT_WEIGHT_HARDWARE = _hardware(
    Support("supported", "torch's dynamic int8 products."),
    sm80=Support("supported", "8 bits are unpacked inside the product; made for small batches."),
)
_SMALL = 1_000_000_000
"""Parameters. Small models lose more: gates of published runs are of 7 billion and more."""

_FP8_GATES = (Gate(1.03, 0.97, _SMALL), Gate(1.01, 0.995))
_INT8_GATES = (Gate(1.02, 0.97, _SMALL), Gate(1.015, 0.985))
_FOUR_BIT_GATES = (Gate(1.28, 0.90, _SMALL), Gate(1.07, 0.98, 10_000_000_000), Gate(1.02, 0.99))
_KV_GATES = (Gate(1.005, 0.995),)
_BOTH = ("native", "llm_compressor")
_TRAINED = (*_BOTH, "qat")
"""8 bits lose too little for a training to win back."""

SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme(
            name="fp8_dynamic",
            label="FP8 W8A8, dynamic",
            explanation="Weights in 8-bit floating point with one scale per output channel; activations get a scale "
            "per token while the model runs. Near lossless, and needs no data.",
            best_for="The first choice on Ada, Hopper and later, at any batch size.",
            weights="FP8 e4m3, per channel",
            activations="FP8 e4m3, per token, dynamic",
            algorithms=("rtn",),
            hardware=_FP8_HARDWARE,
            gates=_FP8_GATES,
            size_factor=_EIGHT_BIT,
            needs_data=False,
            backends=_BOTH,
        ),
        Scheme(
            name="fp8_static",
            label="FP8 W8A8, static",
            explanation="As FP8 dynamic, but activations have one scale per layer that is measured beforehand. A "
            "little faster; values beyond what the calibration data showed are cut.",
            best_for="Latency on Ada and Hopper where the traffic is known and much alike.",
            weights="FP8 e4m3, per channel",
            activations="FP8 e4m3, per tensor, calibrated",
            algorithms=("rtn",),
            hardware=_FP8_HARDWARE,
            gates=_FP8_GATES,
            size_factor=_EIGHT_BIT,
            backends=_BOTH,
        ),
        Scheme(
            name="fp8_block",
            label="FP8, blocks of 128 × 128",
            explanation="A scale per block of 128 × 128 weights and per 128 activations of a token, as DeepSeek "
            "trains. Outliers disturb only their own block.",
            best_for="Hopper and later, models with strong outliers.",
            weights="FP8 e4m3, blocks of 128 × 128",
            activations="FP8 e4m3, groups of 128, dynamic",
            algorithms=("rtn",),
            hardware={
                **_FP8_HARDWARE,
                "sm89": Support("slow", "The block kernels are made for compute capability 9.0: unpacked here."),
            },
            gates=_FP8_GATES,
            size_factor=_EIGHT_BIT,
            needs_data=False,
            backends=_BOTH,
        ),
        Scheme(
            name="int8_w8a8",
            label="INT8 W8A8",
            explanation="Weights and activations in 8-bit integers. SmoothQuant first moves outliers of activations "
            "into the weights; GPTQ can then choose the weights' rounding.",
            best_for="Ampere (A100, A10) and CPUs, at large batches and long prompts.",
            weights="INT8, per channel, symmetric",
            activations="INT8, per token, dynamic",
            algorithms=("smoothquant", "gptq", "smoothquant_gptq", "rtn"),
            hardware=_INT8_HARDWARE,
            gates=_INT8_GATES,
            size_factor=_EIGHT_BIT,
            backends=_BOTH,
            extra=("alpha", "damping", "scale_search"),
        ),
        Scheme(
            name="w4a16_gptq",
            label="INT4 W4A16, GPTQ",
            explanation="Weights in 4 bits with a scale per group of inputs, rounded one column after the other so "
            "that each makes up for the error of those before.",
            best_for="Small batches and small GPUs: decoding reads a quarter of the bytes.",
            weights="INT4, groups, symmetric",
            activations="16 bits",
            algorithms=("gptq", "autoround", "rtn"),
            hardware=_FOUR_BIT_HARDWARE,
            gates=_FOUR_BIT_GATES,
            size_factor=_GROUPED,
            grouped=True,
            backends=_TRAINED,
            extra=("damping", "act_order", "scale_search"),
        ),
        Scheme(
            name="w4a16_awq",
            label="INT4 W4A16, AWQ",
            explanation="Weights in 4 bits with a scale and a zero per group; channels that activations run hot in are "
            "widened first, so that they keep their digits.",
            best_for="As GPTQ, where calibration data is scarce or of another kind than the traffic.",
            weights="INT4, groups, asymmetric",
            activations="16 bits",
            algorithms=("awq", "rtn"),
            hardware=_FOUR_BIT_HARDWARE,
            gates=_FOUR_BIT_GATES,
            size_factor=_GROUPED + 4 / 128 / 16,
            grouped=True,
            backends=_TRAINED,
            extra=("scale_search",),
        ),
        Scheme(
            name="int8_weight_only",
            label="INT8 W8A16",
            explanation="Weights in 8-bit integers, activations untouched. Needs no data and loses next to nothing.",
            best_for="Small batches on any GPU where 4 bits lose too much.",
            weights="INT8, per channel, symmetric",
            activations="16 bits",
            algorithms=("rtn",),
            hardware=_EIGHT_WEIGHT_HARDWARE,
            gates=_INT8_GATES,
            size_factor=_EIGHT_BIT,
            needs_data=False,
            backends=_BOTH,
        ),
        Scheme(
            name="kv_fp8",
            label="KV cache in FP8",
            explanation="Weights stay; keys and values are kept in 8-bit floating point with a measured scale per "
            "layer. Twice the tokens fit into the same memory.",
            best_for="Long contexts and many concurrent requests on Ada, Hopper and later.",
            weights="unchanged",
            activations="unchanged",
            kv="FP8 e4m3, per tensor, calibrated",
            algorithms=("rtn",),
            hardware=_hardware(
                Support("supported", "Kept in 8 bits, computed in float32."),
                sm80=Support("slow", "No FP8 conversion in hardware before compute capability 8.9: choose INT8 KV."),
                sm89=Support("supported", "Converted inside the attention kernel."),
            ),
            gates=_KV_GATES,
            size_factor=1.0,
            backends=_BOTH,
        ),
        Scheme(
            name="kv_int8",
            label="KV cache in INT8",
            explanation="Weights stay; keys and values are kept in 8-bit integers with a scale per token and head, "
            "found while the model runs. Twice the tokens fit into the same memory.",
            best_for="Long contexts on any GPU, Ampere among them.",
            weights="unchanged",
            activations="unchanged",
            kv="INT8, per token and head",
            algorithms=("rtn",),
            hardware=_hardware(
                Support("supported", "Kept in 8 bits, computed in float32."),
                sm80=Support("supported", "Converted inside the attention kernel."),
            ),
            gates=_KV_GATES,
            size_factor=1.0,
            needs_data=False,
        ),
        Scheme(
            name="embedding_int8",
            label="Embedding in INT8",
            explanation="Weights of the layers stay; the embedding table is kept in 8 bits with a scale per row. A "
            "tied head is the same table.",
            best_for="Small models with a large vocabulary, whose table is a good part of all weights.",
            weights="unchanged",
            activations="unchanged",
            embedding="INT8, per row",
            algorithms=("rtn",),
            hardware=_EIGHT_WEIGHT_HARDWARE,
            gates=(Gate(1.005, 0.995),),
            size_factor=1.0,
            needs_data=False,
        ),
        Scheme(
            name="mixed",
            label="Mixed precision by sensitivity",
            explanation="Measures what each layer loses in each precision, then gives the digits to where they count, "
            "under a limit of bytes for all weights.",
            best_for="Where 4 bits lose too much and 8 are too large.",
            weights="INT4, INT8 or 16 bits, layer by layer",
            activations="16 bits",
            algorithms=("gptq", "rtn"),
            hardware=_FOUR_BIT_HARDWARE,
            gates=_FOUR_BIT_GATES,
            size_factor=5 / 16,
            grouped=True,
            extra=("budget_bytes", "damping", "act_order", "scale_search"),
        ),
    )
}


def gate_of(scheme: str, parameters: int) -> Gate:
    """The gate that a model of so many parameters has to pass. Raises KeyError for an unknown scheme."""
    gates = SCHEMES[scheme].gates
    return next(gate for gate in gates if gate.up_to_parameters is None or parameters <= gate.up_to_parameters)
