"""Two versions of a model on one text, layer by layer: where a quantized, distilled or changed one leaves the other.

    python -m engines.native.compare REFERENCE OTHER [--dtype float32] [--other-dtype int8] [--text FILE] [--json FILE]

REFERENCE and OTHER: a GGUF file, or a folder with safetensors, config.json and tokenizer.json; one model may stand in
both places, in two dtypes. Per layer: the relative error of the residual stream, |b − a| / |a| over all tokens; that
error where each layer of OTHER is given REFERENCE's stream, so what the layer adds by itself; and the least cosine of a
token. Of the answers: KL(a ‖ b) in nats per token, and how often the likeliest token is the same.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from engines.native.config import ConfigError, EngineConfig
from engines.native.loader.errors import BadModel
from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.models.calibration import TEXT
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner, build_runner
from engines.native.step import StepPlan

TOKENS = 512


@dataclass(frozen=True, slots=True)
class LayerDifference:
    """own_error: the relative error where the layer is given the reference's residual stream, so what it adds itself;
    None where that was not run."""

    layer: int
    relative_error: float
    own_error: float | None
    least_cosine: float
    worst_token: int  # position of the token with that cosine


@dataclass(frozen=True, slots=True)
class Comparison:
    """kl: nats per token; same_top: share of positions where the likeliest token is the same; first_change: the first
    position where it is not, −1 for none. perplexity: of the text, for both."""

    tokens: int
    layers: list[LayerDifference]
    kl: float
    kl_p99: float
    same_top: float
    first_change: int
    perplexity: tuple[float, float]


@dataclass(slots=True)
class Trace:
    """layers: residual streams float32 [tokens, hidden], after each layer; logprobs: float32 [tokens, vocab]."""

    layers: list[torch.Tensor]
    logprobs: torch.Tensor


def trace(runner: ModelRunner, ids: list[int], given: Sequence[torch.Tensor] = ()) -> Trace:
    """One pass over `ids`. given: another model's residual streams, which each layer gets in place of this one's
    (`Decoder.watch`). The runner is of no use for serving afterwards: its layers are watched."""
    layers: list[torch.Tensor] = []
    logits: list[torch.Tensor] = []
    model, head = runner.model, runner.model.weights.head
    model.watch(lambda residual: layers.append(residual.float().cpu()), given)

    def keep(hidden: torch.Tensor) -> torch.Tensor:
        found = head(hidden)
        logits.append(found.float().cpu())
        return found

    model.weights.head = keep
    runner.add(0, ids, SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0), len(ids))
    blocks = list(range(1, -(-len(ids) // runner.block_size) + 1))
    row, count = np.zeros(1, np.int32), np.array([len(ids)], np.int32)
    runner.launch(StepPlan(row, row, count, np.array([True]), [(0, 0, blocks)])).wait()
    model.weights.head = head
    layers[-1] = layers[-1][1:]  # the first is the token that draws; it comes again among those that are scored
    scored = torch.cat([*logits[1:], logits[0]])  # of all tokens but the last, then of the last
    return Trace(layers, scored.log_softmax(-1))


def compare(a: Trace, b: Trace, ids: list[int], own: Trace | None = None) -> Comparison:
    """own: b once more, each layer given a's residual stream. Raises ValueError for models of two shapes."""
    if [x.shape for x in a.layers] != [x.shape for x in b.layers] or a.logprobs.shape != b.logprobs.shape:
        shapes = [f"{len(t.layers)} layers of {t.layers[0].shape[1]}, {t.logprobs.shape[1]} tokens" for t in (a, b)]
        raise ValueError(f"the two models are not of one shape: {shapes[0]} against {shapes[1]}")
    fed: Sequence[torch.Tensor | None] = own.layers if own is not None else [None] * len(a.layers)
    layers = [_layer(index, *three) for index, three in enumerate(zip(a.layers, b.layers, fed, strict=True))]
    kl = (a.logprobs.exp() * (a.logprobs - b.logprobs)).nan_to_num(0.0).sum(-1).double()
    same = a.logprobs.argmax(-1) == b.logprobs.argmax(-1)
    changed = (~same).nonzero().flatten().tolist()
    targets = torch.tensor(ids[1:])[:, None]
    perplexity = [float(t.logprobs[:-1].gather(1, targets).double().mean().neg().exp()) for t in (a, b)]
    return Comparison(
        len(ids), layers, float(kl.mean()), float(kl.quantile(0.99)), float(same.double().mean()),
        changed[0] if changed else -1, (perplexity[0], perplexity[1]),
    )  # fmt: skip


def _layer(index: int, a: torch.Tensor, b: torch.Tensor, own: torch.Tensor | None) -> LayerDifference:
    cosine = torch.nn.functional.cosine_similarity(a, b, dim=-1)
    worst = int(cosine.argmin())
    own_error = None if own is None else _relative(a, own)
    return LayerDifference(index, _relative(a, b), own_error, float(cosine[worst]), worst)


def _relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((b - a).norm() / a.norm())


def table(found: Comparison) -> str:
    lines = ["layer  relative error     of its own  least cosine  at token"]
    lines += [
        f"{each.layer:5d}  {each.relative_error:14.3e}  {_own(each):>13}  {each.least_cosine:12.6f}  "
        f"{each.worst_token:8d}"
        for each in found.layers
    ]
    grown = max(found.layers, key=lambda each: each.relative_error)
    lines += [
        "",
        f"{found.tokens} tokens; the greatest relative error is {grown.relative_error:.3e}, after layer {grown.layer}",
        f"KL {found.kl:.3e} nats per token (P99 {found.kl_p99:.3e}); same likeliest token {found.same_top:.2%}"
        + (f", the first other one at position {found.first_change}" if found.first_change >= 0 else ""),
        f"perplexity of the text {found.perplexity[0]:.4f} against {found.perplexity[1]:.4f}",
    ]
    return "\n".join(lines)


def _own(layer: LayerDifference) -> str:
    return "–" if layer.own_error is None else f"{layer.own_error:.3e}"


@dataclass(frozen=True, slots=True)
class Compared:
    """One of the two models. format and paths as EngineConfig has them; paths: file name → path."""

    format: str
    paths: dict[str, str]
    dtype: str


def of_path(model: Path, dtype: str) -> Compared:
    """A GGUF file, or a folder with safetensors."""
    files = sorted(file for file in model.iterdir() if file.is_file()) if model.is_dir() else [model]
    kind = "safetensors" if model.is_dir() else "gguf"
    return Compared(kind, {file.name: str(file) for file in files}, dtype)


def config_of(model: Compared, device: str) -> EngineConfig:
    """Raises BadModel for its files."""
    length = min(TOKENS + 16, open_model(model.format, model.paths).config.context_length)
    return EngineConfig(
        format=model.format, paths=model.paths, device=device, dtype=model.dtype, max_model_len=length, max_num_seqs=1,
        max_batched_tokens=TOKENS + 64, prefix_cache=False,
    )  # fmt: skip


def run(
    reference: Compared, other: Compared, *, device: str, text: str = "", progress: Callable[[float, str], None]
) -> Comparison:
    """text: its first TOKENS tokens count; "" for the calibration text. progress: called with the share done, 0…1, and
    what is being done. One model is in memory at a time. Raises BadModel, ConfigError, or ValueError where the two
    can't be compared."""
    configs = [config_of(model, device) for model in (reference, other)]
    ids = _ids(configs[0], text or TEXT)
    if len(ids) < 2:
        raise ValueError("the text has fewer than two tokens")
    if _ids(configs[1], text or TEXT) != ids:
        raise ValueError("the two models cut the text into different tokens: their layers can't be compared")
    a = trace(build_runner(configs[0], lambda share: progress(0.5 * share, "the reference: loaded, then run")), ids)
    gc.collect()  # one model in memory at a time
    runner = build_runner(configs[1], lambda share: progress(0.5 + 0.5 * share, "the other version: loaded, then run"))
    b = trace(runner, ids)
    if len(a.layers) != len(b.layers) or a.layers[0].shape != b.layers[0].shape:
        return compare(a, b, ids)  # which says that they are not of one shape
    return compare(a, b, ids, trace(runner, ids, a.layers[:-1]))


def _ids(config: EngineConfig, text: str) -> list[int]:
    """As many tokens of the text as are compared."""
    tokenizer, facts = load_tokenizer(open_model(config.format, dict(config.paths)))
    start = [facts.bos_id] if facts.add_bos and facts.bos_id is not None else []
    return [*start, *tokenizer.encode(text, add_special_tokens=False).ids][: min(TOKENS, config.max_model_len - 1)]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", type=Path)
    parser.add_argument("other", type=Path)
    parser.add_argument("--dtype", default="float32", help="of the reference")
    parser.add_argument("--other-dtype", default="auto")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="cpu")
    parser.add_argument("--text", type=Path, help=f"the text; its first {TOKENS} tokens count")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args(arguments)
    try:
        text = options.text.read_text(encoding="utf-8") if options.text else ""
        found = run(
            of_path(options.reference, options.dtype),
            of_path(options.other, options.other_dtype),
            device=options.device,
            text=text,
            progress=lambda share, doing: None,
        )
    except (BadModel, ConfigError, ValueError, OSError) as error:
        print(f"compare: {error}", file=sys.stderr)
        return 2
    print(table(found))
    if options.json:
        options.json.write_text(json.dumps(asdict(found), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
