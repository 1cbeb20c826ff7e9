"""A GGUF model exported for transformers computes there what our engine computes from the GGUF itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from engines.native.config import EngineConfig
from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.offline import Offline
from engines.native.request import SamplingParams
from engines.protocol import ChildError
from evaluation.benchmarks.hf_folder import export
from tests.engines import gguf_files
from tests.tiny_models import write_gguf

IDS = [5, 6, 60, 10, 20, 3, 47, 47, 12, 5, 31, 24]


def written(folder: Path, architecture: str) -> Path:
    content = {name: values * 0.2 for name, values in gguf_files.tensors(seed=3).items()}
    random = np.random.default_rng(4)
    if architecture == "qwen2":
        for layer in range(gguf_files.LAYERS):
            for part in ("q", "k", "v"):
                rows = len(content[f"blk.{layer}.attn_{part}.weight"])
                content[f"blk.{layer}.attn_{part}.bias"] = random.standard_normal(rows).astype(np.float32)
    return gguf_files.write(folder / "tiny.gguf", content, architecture=architecture, pre="qwen2")


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_the_same_scores(tmp_path: Path, architecture: str) -> None:
    from transformers import AutoModelForCausalLM

    model = written(tmp_path, architecture)
    folder = export(model, tmp_path / "folder")
    peer = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert type(peer).__name__ == {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}[architecture]
    with torch.inference_mode():
        scores = torch.log_softmax(peer(torch.tensor([IDS])).logits[0], dim=-1)
    wanted = scores[torch.arange(len(IDS) - 1), torch.tensor(IDS[1:])]
    for format, paths in (("gguf", [model]), ("safetensors", sorted(folder.iterdir()))):
        config = EngineConfig(
            format=format,
            paths={path.name: str(path) for path in paths},
            device="cpu",
            dtype="float32",
            max_model_len=64,
            max_num_seqs=2,
            kv_cache_bytes=2**20,
        )
        params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
        [found] = Offline(config).generate([IDS], params)
        torch.testing.assert_close(torch.tensor(found.prompt_logprobs), wanted, atol=1e-4, rtol=0)


def test_the_same_tokens_and_ends(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    model = write_gguf(tmp_path / "tiny.gguf")
    folder = export(model, tmp_path / "folder")
    own, facts = load_tokenizer(open_model("gguf", {model.name: str(model)}))
    exported = Tokenizer.from_file(str(folder / "tokenizer.json"))
    peer = AutoTokenizer.from_pretrained(folder)
    for text in ("ab 1  2\n3", "<|start|>a<|end|>", "über"):
        ids = own.encode(text, add_special_tokens=False).ids
        assert exported.encode(text, add_special_tokens=False).ids == ids
        assert peer(text, add_special_tokens=False).input_ids == ids
    assert (peer.bos_token_id, peer.eos_token_id) == (facts.bos_id, facts.eos_ids[0])
    assert peer.chat_template == facts.chat_template


def test_what_it_does_not_know_is_refused(tmp_path: Path) -> None:
    """transformers' Qwen2 always has biases, and would make some up for a file without."""
    model = gguf_files.write(tmp_path / "bare.gguf", architecture="qwen2")
    with pytest.raises(ChildError, match=r"qkv_bias can.t be said in a config.json of qwen2"):
        export(model, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
