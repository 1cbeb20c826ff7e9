"""A model's logits through our loader, row tables and runner, beside those of a reference that takes token ids."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

from engines.native.config import EngineConfig
from engines.native.loader.model_files import open_model
from engines.native.models.decoder import Decoder
from engines.native.ops.base import Batch
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner, runner_for
from engines.native.step import StepPlan

Reference = Callable[[list[int]], torch.Tensor]
"""Token ids → logits [tokens, vocab], float32."""

BASE: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "pad_token_id": None,
    "eos_token_id": None,
    "bos_token_id": None,
}


def transformers_model(kind: str, seed: str, **changes: Any) -> torch.nn.Module:
    """Random weights, with biases, norms and buffers that are not trivial."""
    torch.manual_seed(sum(map(ord, seed)))
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **(BASE | changes)), dtype=torch.float32)
    for name, parameter in model.named_parameters():
        if "norm" in name or name.endswith("bias"):
            torch.nn.init.normal_(parameter, mean=1.0 if "norm" in name else 0.0, std=0.2)
        else:
            torch.nn.init.normal_(parameter, std=0.15)
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            torch.nn.init.normal_(buffer, std=0.2)
    return model.eval()


def reference_of(model: torch.nn.Module) -> Reference:
    def logits(ids: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            return model(torch.tensor([ids])).logits[0]

    return logits


def saved(model: torch.nn.Module, folder: Path) -> dict[str, str]:
    """As transformers writes a model; file name → path."""
    model.save_pretrained(folder)
    return {path.name: str(path) for path in folder.iterdir()}


def written(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> dict[str, str]:
    """A model of files made by hand."""
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return {path.name: str(path) for path in folder.iterdir()}


def runner_of(paths: dict[str, str], dtype: str = "float32", max_model_len: int = 0, ops: str = "") -> ModelRunner:
    format = "gguf" if any(name.endswith(".gguf") for name in paths) else "safetensors"
    config = EngineConfig(
        format=format, paths=paths, device="cpu", dtype=dtype, max_num_seqs=4, max_batched_tokens=256, block_size=8,
        max_model_len=max_model_len, ops=ops,
    )  # fmt: skip
    return runner_for(open_model(format, paths), config)


def token_ids(seed: int, count: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, BASE["vocab_size"], count).tolist()


def add(runner: ModelRunner, row: int, tokens: list[int]) -> None:
    runner.add(row, tokens, SamplingParams(temperature=0, max_tokens=1), len(tokens))


@torch.inference_mode()
def logits_of(
    runner: ModelRunner, work: list[tuple[int, int, int]], blocks: dict[int, list[int]]
) -> list[torch.Tensor]:
    """Logits of every computed token, per (row, start, count) of one pass."""
    rows, start, count = (np.array(column, np.int32) for column in zip(*work, strict=True))
    new = [(row, 0, blocks.pop(row)) for row in list(blocks)]
    plan = StepPlan(rows, start, count, np.zeros(len(rows), np.bool_), new)
    captured: list[torch.Tensor] = []
    model = runner.model

    class Everywhere(Decoder):
        def hidden(self, batch: Batch) -> torch.Tensor:
            wanted = batch.logits_index
            batch.logits_index = torch.arange(len(batch.token_ids))
            every = super().hidden(batch)
            captured.append(self.logits(every))
            return every[wanted]

    runner.model = Everywhere(model.config, model.weights, model.ops, model.kv)
    try:
        runner.launch(plan).wait()
    finally:
        runner.model = model
    return list(captured[0].split(count.tolist()))


def close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def check(runner: ModelRunner, wanted: Reference, tolerance: float = 1e-4) -> None:
    """Prefill, decode over scattered blocks, a mixed step of ragged lengths, and rows that decode together."""
    tokens = token_ids(1, 37)
    add(runner, 0, tokens)
    close(logits_of(runner, [(0, 0, 37)], {0: [1, 2, 3, 4, 5]})[0], wanted(tokens), tolerance)

    tokens = token_ids(2, 30)
    add(runner, 1, tokens)
    ours = [logits_of(runner, [(1, 0, 5)], {1: [9, 3, 14, 7]})[0]]
    ours += [logits_of(runner, [(1, at, 1)], {})[0] for at in range(5, 30)]
    close(torch.cat(ours), wanted(tokens), tolerance)

    sequences = [token_ids(10 + row, length) for row, length in enumerate((33, 21, 40))]
    for row, tokens in enumerate(sequences):
        add(runner, row, tokens)
    tables = {0: [1, 2, 3, 4, 5], 1: [8, 6, 7], 2: [20, 11, 12, 10, 9]}
    first = logits_of(runner, [(0, 0, 31), (1, 0, 13), (2, 0, 20)], tables)
    second = logits_of(runner, [(0, 31, 1), (2, 20, 19), (1, 13, 7)], {})
    third = logits_of(runner, [(0, 32, 1), (1, 20, 1), (2, 39, 1)], {})
    close(torch.cat([first[0], second[0], third[0]]), wanted(sequences[0]), tolerance)
    close(torch.cat([first[1], second[2], third[1]]), wanted(sequences[1]), tolerance)
    close(torch.cat([first[2], second[1], third[2]]), wanted(sequences[2]), tolerance)
