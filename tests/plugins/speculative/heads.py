"""A tiny target, heads for it in the hub's dialects with random weights, and what plain torch makes of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from engines.native.config import EngineConfig
from engines.native.loader.model_files import open_model
from engines.native.runner import ModelRunner, runner_for
from engines.native.step import StepPlan
from tests.engines.models.harness import BASE, add, saved, transformers_model
from tests.engines.models.plain_models import attend, rms, turn_halves

LAYERS, HIDDEN, VOCAB, DRAFT_VOCAB, EPS = 8, BASE["hidden_size"], BASE["vocab_size"], 40, 1e-6
SHAPE = {"num_hidden_layers": LAYERS, "rms_norm_eps": EPS, "rope_theta": 10_000.0}
Tensors = dict[str, torch.Tensor]


def target_model() -> torch.nn.Module:
    return transformers_model("llama", "target of heads", **SHAPE)


def runner_of(folder: Path, model: torch.nn.Module) -> tuple[ModelRunner, EngineConfig]:
    config = EngineConfig(
        format="safetensors", paths=saved(model, folder), device="cpu", dtype="float32", max_model_len=64,
        max_num_seqs=4, max_batched_tokens=48, block_size=8, threads=1, speculation="off",
    )  # fmt: skip
    runner = runner_for(open_model(config.format, dict(config.paths)), config)
    runner.model.ops.trees = True  # as on a GPU
    return runner, config


def compute(runner: ModelRunner, row: int, tokens: list[int], start: int = 0) -> None:
    """All but the last, as before a pass that decodes."""
    size = runner.block_size
    add(runner, row, tokens)
    blocks = [1 + row * 8 + i for i in range(-(-len(tokens) // size))]
    one = [np.array([value], np.int32) for value in (row, start, len(tokens) - 1 - start)]
    runner.launch(StepPlan(*one, sample=np.array([False]), new_blocks=[(row, 0, blocks)])).wait()


def states(model: torch.nn.Module, tokens: list[int]) -> list[torch.Tensor]:
    """The stream before each layer, and the normed output: [tokens, hidden] each."""
    with torch.inference_mode():
        return [each[0] for each in model(torch.tensor([tokens]), output_hidden_states=True).hidden_states]


@dataclass
class PlainHead:
    """EAGLE-3 without a cache: everything is computed again for each token."""

    weights: Tensors  # by the names of speculators
    embed: torch.Tensor
    targets: torch.Tensor
    streams: tuple[int, ...]
    norm_first: bool

    def layer(self, ids: list[int], feature: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """→ what the head's product reads, and the features of what it says next: [tokens, hidden]."""
        w, heads, kv_heads = self.weights, BASE["num_attention_heads"], BASE["num_key_value_heads"]
        normed = rms(feature, w["layers.0.hidden_norm.weight"], EPS)
        residual = normed if self.norm_first else feature
        x = torch.cat([rms(self.embed[ids], w["layers.0.input_layernorm.weight"], EPS), normed], -1)
        q, k, v = (
            F.linear(x, w[f"layers.0.self_attn.{name}_proj.weight"]).view(len(ids), count, -1)
            for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        )
        out = F.linear(attend(turn_halves(q, 1e4), turn_halves(k, 1e4), v), w["layers.0.self_attn.o_proj.weight"])
        residual = residual + out
        x = rms(residual, w["layers.0.post_attention_layernorm.weight"], EPS)
        gate, up = (F.linear(x, w[f"layers.0.mlp.{name}_proj.weight"]) for name in ("gate", "up"))
        residual = residual + F.linear(F.silu(gate) * up, w["layers.0.mlp.down_proj.weight"])
        return rms(residual, w["norm.weight"], EPS), residual

    def chain(self, model: torch.nn.Module, tokens: list[int], depth: int) -> tuple[list[int], list[float]]:
        every = states(model, tokens)
        feature = F.linear(torch.cat([every[at] for at in self.streams], -1)[:-1], self.weights["fc.weight"])
        ids, said, chances = tokens[1:], [], []
        for _ in range(depth):
            x, residual = self.layer(ids, feature)
            found = F.linear(x[-1], self.weights["lm_head.weight"]).softmax(-1)
            said.append(int(self.targets[found.argmax()]))
            chances.append(float(found.max()))
            ids, feature = [*ids, said[-1]], torch.cat([feature, residual[-1:]])
        return said, chances


def random_head(seed: int, streams: int = 3) -> Tensors:
    """By the names of speculators."""
    generator = torch.Generator().manual_seed(seed)
    size = HIDDEN // BASE["num_attention_heads"]
    kv, ffn = BASE["num_key_value_heads"] * size, BASE["intermediate_size"]
    shapes = {
        "fc": (HIDDEN, streams * HIDDEN),
        "layers.0.self_attn.q_proj": (HIDDEN, 2 * HIDDEN),
        "layers.0.self_attn.k_proj": (kv, 2 * HIDDEN),
        "layers.0.self_attn.v_proj": (kv, 2 * HIDDEN),
        "layers.0.self_attn.o_proj": (HIDDEN, HIDDEN),
        "layers.0.mlp.gate_proj": (ffn, HIDDEN),
        "layers.0.mlp.up_proj": (ffn, HIDDEN),
        "layers.0.mlp.down_proj": (HIDDEN, ffn),
        "lm_head": (DRAFT_VOCAB, HIDDEN),
    }
    weights = {
        f"{name}.weight": torch.randn(shape, generator=generator) * 1.5 * shape[1] ** -0.5
        for name, shape in shapes.items()
    }
    norms = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
    for name in ("norm.weight", *(f"layers.0.{norm}.weight" for norm in norms)):
        weights[name] = 1 + 0.2 * torch.randn(HIDDEN, generator=generator)
    targets = torch.randperm(VOCAB, generator=generator)[:DRAFT_VOCAB].sort().values
    weights["d2t"] = targets - torch.arange(DRAFT_VOCAB)
    weights["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill(0, targets, True)
    return weights


def layer_config(**changes: Any) -> dict[str, Any]:
    return BASE | SHAPE | {"num_hidden_layers": 1, "model_type": "llama", "hidden_act": "silu", **changes}


def write_eagle(folder: Path, weights: Tensors, **changes: Any) -> tuple[str, dict[str, str]]:
    """As EAGLE and SGLang have it: the layer's config, midlayer.*, streams by the layers that they leave."""
    config = layer_config(architectures=["LlamaForCausalLMEagle3"], draft_vocab_size=DRAFT_VOCAB) | changes
    return written(folder, config, {name.replace("layers.0.", "midlayer."): each for name, each in weights.items()})


def write_speculators(folder: Path, weights: Tensors, **changes: Any) -> tuple[str, dict[str, str]]:
    config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "transformer_layer_config": layer_config(),
        "draft_vocab_size": DRAFT_VOCAB,
        "norm_before_residual": True,
    }
    return written(folder, config | changes, weights)


def written(folder: Path, config: dict[str, Any], weights: Tensors) -> tuple[str, dict[str, str]]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: each.contiguous() for name, each in weights.items()}, folder / "model.safetensors")
    return "safetensors", {path.name: str(path) for path in folder.iterdir()}
