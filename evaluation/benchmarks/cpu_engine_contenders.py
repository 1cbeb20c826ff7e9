"""What `cpu_engine` compares: each is loaded from the same GGUF file and becomes generate(prompts, outputs)."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from engines.native import threads

Generate = Callable[[list[list[int]], int], object]
"""(prompts as token ids, output tokens of each) → whatever it likes; all the work is done when it returns."""


def prompt(seed: int, length: int) -> list[int]:
    chooser = random.Random(seed)
    return [chooser.randrange(1000, 48_000) for _ in range(length)]


def native(model: Path, dtype: str, speculation: str = "off") -> Generate:
    """Our engine, one token a pass unless `speculation` says otherwise. Its threads wait as a core's do."""
    threads.may_spin()
    from engines.native.config import EngineConfig
    from engines.native.offline import Offline
    from engines.native.request import SamplingParams

    config = EngineConfig(
        speculation=speculation,
        format="gguf",
        paths={model.name: str(model)},
        device="cpu",
        dtype=dtype,
        max_model_len=1024,
        max_num_seqs=8,
        max_batched_tokens=512,
        prefix_cache=False,
    )
    threads.watch(config.cores)
    engine = Offline(config)
    return lambda prompts, outputs: engine.generate(prompts, SamplingParams(temperature=0, max_tokens=outputs))


def transformers(model: Path, dtype: str) -> Generate:
    """The weights come through our reader, dequantized to float32: the same numbers on both sides."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from engines.native.loader.model_files import open_model
    from engines.native.loader.names import file_name
    from engines.native.loader.weights import Weights

    files = open_model("gguf", {model.name: str(model)})
    shape = files.config
    config = LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=shape.context_length,
        rms_norm_eps=shape.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope.theta},
        tie_word_embeddings=shape.tied,
    )
    peer = LlamaForCausalLM(config).to(getattr(torch, dtype)).eval()
    with Weights(files) as weights:
        state = {file_name(name, "safetensors"): weights.read(name, torch.float32) for name in files.tensors}
    missing = peer.load_state_dict(state, strict=False)
    if missing.unexpected_keys or [key for key in missing.missing_keys if key != "lm_head.weight"]:
        raise RuntimeError(f"the peer did not take the weights: {missing}")

    def generate(prompts: list[list[int]], outputs: int) -> object:
        with torch.inference_mode():
            return [
                peer.generate(
                    torch.tensor([ids]),
                    attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                    max_new_tokens=outputs,
                    min_new_tokens=outputs,
                    do_sample=False,
                    eos_token_id=None,
                    pad_token_id=0,
                )
                for ids in prompts
            ]

    return generate


def deployed(model: Path, dtype: str) -> Generate:
    """Our engine with the speculation that a deployment has by default."""
    return native(model, dtype, speculation="auto")


LOADERS: dict[str, Callable[[Path, str], Generate]] = {
    "native": native,
    "deployed": deployed,
    "transformers": transformers,
}
