"""A decoder with random weights on the real runner: speed and agreement do not need a trained model."""

from __future__ import annotations

import numpy as np
import torch

from engines.native.config import EngineConfig
from engines.native.kv_cache import calibrate, make_pools
from engines.native.layers.embedding import TableEmbedding
from engines.native.layers.linear import Linear, Method, method_for
from engines.native.layers.rope import cos_sin_table
from engines.native.models.config import DecoderConfig, Rope
from engines.native.models.decoder import Decoder, DecoderWeights, LayerWeights
from engines.native.models.tensors import activation_dtype
from engines.native.offload import OffloadedLayer
from engines.native.ops.registry import make_ops
from engines.native.request import SamplingParams
from engines.native.runner import ModelRunner, ops_name
from engines.native.sizes import device_of, sizes_of
from engines.native.step import StepPlan

TINY = DecoderConfig(
    architecture="qwen3", layers=2, hidden=32, ffn=64, heads=2, kv_heads=1, head_dim=16, vocab=96, context_length=64,
    norm_eps=1e-6, rope=Rope(), tied=False, qkv_bias=True, o_bias=False, mlp_bias=False, qk_norm=True, windows=(0, 8),
)  # fmt: skip
"""Every switch of the family on, in the smallest shape that the interpreter of Triton computes in seconds."""


def random_weights(
    shape: DecoderConfig, dtype: str, device: torch.device, positions: int, seed: int, kept: Method | None = None,
    strict: bool = False,
) -> DecoderWeights:  # fmt: skip
    """Matrices with variance 1 / inputs, so that activations keep their size; norms near 1. kept: how the layers keep
    theirs, if not as everyone does; the head is not theirs. strict: as in `method_for`."""
    generator = torch.Generator(device).manual_seed(seed)
    activation, method = activation_dtype(dtype), method_for(dtype, device.type, strict=strict)

    def matrix(rows: int, columns: int, scale: float = 1.0) -> torch.Tensor:
        weight = torch.randn(rows, columns, generator=generator, device=device, dtype=torch.float32)
        return weight.mul_(scale * columns**-0.5).to(activation)

    def norm(size: int) -> torch.Tensor:
        return torch.randn(size, generator=generator, device=device).mul_(0.1).add_(1.0).to(activation)

    def linear(rows: int, columns: int, bias: bool) -> Linear:
        return (kept or method)(matrix(rows, columns), norm(rows) - 1 if bias else None)

    layers: list[LayerWeights | OffloadedLayer] = [
        LayerWeights(
            input_norm=norm(shape.hidden),
            qkv=linear(shape.q_size + 2 * shape.kv_size, shape.hidden, shape.qkv_bias),
            q_norm=norm(shape.head_dim) if shape.qk_norm else None,
            k_norm=norm(shape.head_dim) if shape.qk_norm else None,
            o=linear(shape.hidden, shape.q_size, shape.o_bias),
            post_norm=norm(shape.hidden),
            gate_up=linear(2 * shape.ffn, shape.hidden, shape.mlp_bias),
            down=linear(shape.hidden, shape.ffn, shape.mlp_bias),
        )
        for _ in range(shape.layers)
    ]
    table = matrix(shape.vocab, shape.hidden, 1.0 if shape.tied else shape.hidden**0.5)
    head = method(table if shape.tied else matrix(shape.vocab, shape.hidden), None)
    cos_sin = cos_sin_table(shape.rope, shape.head_dim, positions, None).to(device)
    return DecoderWeights(TableEmbedding(table, activation), layers, norm(shape.hidden), head, [cos_sin] * shape.layers)


def random_runner(shape: DecoderConfig, config: EngineConfig, seed: int, kept: Method | None = None) -> ModelRunner:
    """kept: as in `random_weights`. Raises ConfigError as `engines.native.runner.build_runner` does."""
    device = device_of(config)
    sizes = sizes_of(shape, config, device)
    weights = random_weights(shape, sizes.dtype, device, sizes.max_model_len, seed, kept, config.strict)
    scales = None
    if sizes.kv_cache_dtype == "fp8":
        ids = torch.randint(shape.vocab, (256,), generator=torch.Generator().manual_seed(seed))
        scales = calibrate(shape, weights, ids, activation_dtype(sizes.dtype), device)
    model = Decoder(shape, weights, make_ops(ops_name(config, sizes, device)), make_pools(shape, sizes, device, scales))
    return ModelRunner(shape, sizes, model, device)


def greedy(runner: ModelRunner, prompts: list[list[int]], steps: int) -> tuple[list[list[int]], list[list[float]]]:
    """Generate `steps` tokens for each prompt through StepPlans, the first prompt in two chunks beside the others.

    Returns the tokens and their log-probabilities, per prompt.
    """

    size = runner.block_size
    params = SamplingParams(temperature=0.0, max_tokens=steps, logprobs=0)
    free = iter(range(1, runner.num_blocks))
    held = [0] * len(prompts)
    tokens: list[list[int]] = [[] for _ in prompts]
    logprobs: list[list[float]] = [[] for _ in prompts]
    for row, prompt in enumerate(prompts):
        runner.add(row, prompt, params, len(prompt))
    computed = [0] * len(prompts)
    while any(len(out) < steps for out in tokens):
        rows = [row for row, out in enumerate(tokens) if len(out) < steps]
        known = {row: len(prompts[row]) + len(tokens[row]) for row in rows}
        count = {row: known[row] - computed[row] for row in rows}
        if not computed[0] and len(prompts[0]) > 2:
            count[0] = len(prompts[0]) // 2
        new_blocks = []
        for row in rows:
            need = -(-(computed[row] + count[row]) // size)
            if need > held[row]:
                new_blocks.append((row, held[row], [next(free) for _ in range(need - held[row])]))
                held[row] = need
        plan = StepPlan(
            rows=np.array(rows, np.int32),
            start=np.array([computed[row] for row in rows], np.int32),
            count=np.array([count[row] for row in rows], np.int32),
            sample=np.array([computed[row] + count[row] == known[row] for row in rows]),
            new_blocks=new_blocks,
        )
        output = runner.launch(plan).wait()
        for place, row in enumerate(rows):
            computed[row] += count[row]
            if output.tokens[place] >= 0:
                tokens[row].append(int(output.tokens[place]))
                logprobs[row].append(float(output.logprobs[place]))
    return tokens, logprobs
