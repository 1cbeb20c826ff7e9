"""What each product of a model loses in fewer bits: it alone is quantized, and the answers are compared.

One sweep over the layers: every variant leaves the unchanged stream at its own layer and runs beside it to the head, so
that a layer is read once. The answers' KL is measured for the least of the options, the others' follows from it by the
error of the product's own outputs (KL grows with the square of a small error, and so with that share of lost energy).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from engines.native.layers.linear import Linear
from engines.native.loader.model_files import ModelFiles
from engines.native.quant.scheme import LinearScheme
from plugins.quantization.layer import quantized_group
from plugins.quantization.model import Parts, Source
from plugins.quantization.observe import Hessian, Stream, linear_of
from plugins.quantization.simulate import advance, product_of
from plugins.quantization.sizes import bytes_of
from plugins.quantization.terms import GROUPS, Recipe

EVERY = 4
"""Of the positions, one in so many is scored: the head costs as much as eight layers of a small model."""

Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Loss:
    """What one product loses in one option. kl: nats per token, KL(unchanged ‖ this product quantized); measured: or
    follows from that of the least option. loss: squared error of the product's outputs as a share of their squares.
    cosine: the least of a token's output with its unchanged one. nbytes: of its weights and scales."""

    kl: float
    measured: bool
    loss: float
    cosine: float
    nbytes: int

    @property
    def sqnr_db(self) -> float | None:
        """Of the outputs, dB; None: nothing is lost."""
        return None if self.loss <= 0 else -10 * float(torch.tensor(self.loss).log10())


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """losses: "layers.3.down" → option → loss; whole: bytes of the product in 16 bits. tokens: that ran."""

    losses: Mapping[str, Mapping[str, Loss]]
    whole: Mapping[str, int]
    tokens: int

    def ranking(self, option: str) -> list[tuple[str, float]]:
        """Products by what they lose, the greatest first, with their KL."""
        found = [(name, losses[option].kl) for name, losses in self.losses.items() if option in losses]
        return sorted(found, key=lambda each: -each[1])


@torch.inference_mode()
def sensitivity(
    files: ModelFiles, recipe: Recipe, options: Mapping[str, LinearScheme], ids: torch.Tensor, progress: Progress
) -> Sensitivity:
    """recipe: how weights are rounded (its schemes and what it keeps aren't read). options: by a name of
    their own. ids: int64 [samples, tokens]; 16 to 64 samples of 64 to 128 tokens are enough for a ranking.

    Raises QuantizationFailed for an option that some product can't have.
    """
    least = min(options, key=lambda name: options[name].weight.bits)
    with Source(files, ids.shape[1]) as source:
        unchanged = Stream(source, ids)
        variants: dict[str, Stream] = {}
        found: dict[str, dict[str, Loss]] = {}
        whole: dict[str, int] = {}
        layers = source.config.layers
        for index in range(layers):
            progress(index / (layers + 1), f"layer {index + 1} of {layers}: each product alone in fewer bits")
            parts = source.parts(index)
            raw = source.raw(index, parts)
            floating = {group: linear_of(raw, group) for group in GROUPS}
            passing = unchanged.layer(index, raw)
            for stream in variants.values():
                advance(source, stream, index, parts, floating)
            for group in GROUPS:
                passing.put(group, floating[group])
                name = f"layers.{index}.{group}"
                inputs = list(passing.inputs(group))
                seen = Hessian(inputs[0].shape[1])
                for x in inputs:
                    seen.add(x)
                whole[name] = sum(2 * parts[f"{member}.weight"].numel() for member in source.members(group))
                found[name] = {}
                for option, scheme in options.items():
                    product, made = _quantized(source, recipe, index, group, scheme, parts, seen)
                    lost, cosine = _local(floating[group], product, inputs)
                    found[name][option] = Loss(0.0, option == least, lost, cosine, made)
                    if option == least:
                        variants[name] = unchanged.fork()
                        advance(source, variants[name], index, parts, floating | {group: product})
            passing.finish()
        progress(layers / (layers + 1), "the answers of each variant")
        wanted = _answers(unchanged)
        for name, stream in variants.items():
            kl = _kl(wanted, _answers(stream))
            base = found[name][least].loss
            for option, loss in found[name].items():
                share = loss.loss / base if base > 0 else 1.0
                found[name][option] = replace(loss, kl=kl if loss.measured else kl * share)
    return Sensitivity(found, whole, ids.numel())


@torch.inference_mode()
def joint_kl(
    files: ModelFiles,
    recipe: Recipe,
    plans: Mapping[str, Mapping[str, LinearScheme | None]],
    ids: torch.Tensor,
    progress: Progress,
) -> dict[str, float]:
    """KL of the answers, nats per token, of the model with each plan ("layers.3.down" → scheme; None: 16 bits) as a
    whole. Each product is rounded with the unchanged model's inputs."""
    with Source(files, ids.shape[1]) as source:
        unchanged = Stream(source, ids)
        variants = {name: unchanged.fork() for name in plans}
        layers = source.config.layers
        for index in range(layers):
            progress(index / (layers + 1), f"layer {index + 1} of {layers}: {len(plans)} plans side by side")
            parts = source.parts(index)
            raw = source.raw(index, parts)
            floating = {group: linear_of(raw, group) for group in GROUPS}
            passing = unchanged.layer(index, raw)
            products: dict[str, dict[str, Linear]] = {name: dict(floating) for name in plans}
            for group in GROUPS:
                passing.put(group, floating[group])
                wanted = {scheme for plan in plans.values() if (scheme := plan.get(f"layers.{index}.{group}"))}
                if not wanted:
                    continue
                seen = Hessian(source.inputs(group))
                for x in passing.inputs(group):
                    seen.add(x)
                made = {each: _quantized(source, recipe, index, group, each, parts, seen)[0] for each in wanted}
                for name, plan in plans.items():
                    scheme = plan.get(f"layers.{index}.{group}")
                    if scheme is not None:
                        products[name][group] = made[scheme]
            passing.finish()
            for name, stream in variants.items():
                advance(source, stream, index, parts, products[name])
        answers = _answers(unchanged)
        return {name: _kl(answers, _answers(stream)) for name, stream in variants.items()}


def _quantized(
    source: Source, recipe: Recipe, index: int, group: str, scheme: LinearScheme, parts: Parts, seen: Hessian
) -> tuple[Linear, int]:
    """The product as it would compute, and its bytes."""
    made, _ = quantized_group(source, recipe, scheme, index, group, parts, seen)
    changed = parts | {f"{member}.weight": weight.dequantize(torch.float32) for member, weight in made.items()}
    product = product_of(source, index, group, changed, made)
    return product, sum(bytes_of(weight) for weight in made.values())


def _local(wanted: Linear, product: Linear, inputs: list[torch.Tensor]) -> tuple[float, float]:
    """(lost share of the outputs' energy, least cosine of a token) on the unchanged model's inputs."""
    lost = energy = 0.0
    cosine = 1.0
    for x in inputs:
        right = wanted(x)
        found = product(x)
        cosine = min(cosine, float(torch.nn.functional.cosine_similarity(right, found, dim=-1).amin()))
        energy += float(right.square().sum())
        lost += float((found - right).square().sum())
    return (lost / energy if energy else 0.0), cosine


def _answers(stream: Stream) -> torch.Tensor:
    """Log-probabilities at every EVERY-th position, float32 [positions, vocab]."""
    hidden = stream.normed(slice(None))[EVERY - 1 :: EVERY]
    found: torch.Tensor = stream.source.ends.head(hidden).log_softmax(-1)
    return found


def _kl(wanted: torch.Tensor, found: torch.Tensor) -> float:
    """KL(wanted ‖ found), the mean over positions, nats."""
    return float((wanted.exp() * (wanted - found)).sum(-1).double().mean().clamp(min=0))
