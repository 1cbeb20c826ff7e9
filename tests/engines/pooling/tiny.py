"""Tiny random models of the classes that transformers has, saved as they are published, and texts for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from engines.native.config import EngineConfig
from engines.native.pooling.queue import Text
from engines.native.pooling.runner import PoolingRunner, build_runner

ENCODER: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 66,
}
DECODER: dict[str, Any] = ENCODER | {"num_key_value_heads": 2, "tie_word_embeddings": False}
WORDS = ["the", "a", "cat", "dog", "sits", "runs", "outside", "inside", "quickly", "red", "blue", "house", "tree"]


def make(folder: Path, kind: str, *, score: bool = False, **changes: Any) -> torch.nn.Module:
    """Random weights with norms and biases that are not trivial, written to `folder`."""
    torch.manual_seed(sum(map(ord, kind)) + len(changes))
    base = DECODER if kind in ("llama", "mistral", "qwen2", "qwen3") else ENCODER
    config = AutoConfig.for_model(kind, **(base | ({"num_labels": 1} if score else {}) | changes))
    made = (AutoModelForSequenceClassification if score else AutoModel).from_config(config, dtype=torch.float32)
    for name, parameter in made.named_parameters():
        norm = "norm" in name.lower()
        torch.nn.init.normal_(parameter, mean=1.0 if norm and name.endswith("weight") else 0.0, std=0.2)
    made.eval().save_pretrained(folder)
    return made


def sentence_transformer(folder: Path, pooling: str, *, normalize: bool, max_tokens: int = 0) -> None:
    """The files that sentence-transformers writes beside a model. pooling: mean | cls | lasttoken."""
    steps = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": paths[i], "type": f"sentence_transformers.models.{step}"}
        for i, step in enumerate(steps)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    key = "pooling_mode_lasttoken" if pooling == "lasttoken" else f"pooling_mode_{pooling}_token"
    key += "s" if pooling == "mean" else ""
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 48, key: True}))
    if max_tokens:
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": max_tokens}))


def tokenizer(folder: Path) -> None:
    """Words to ids, with BERT's special tokens around texts and pairs."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(special + WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.add_special_tokens(special)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    made.save(str(folder / "tokenizer.json"))


def paths_of(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): str(path) for path in folder.rglob("*") if path.is_file()}


def runner(folder: Path, **changes: Any) -> PoolingRunner:
    settings = {"device": "cpu", "dtype": "float32", "threads": 1} | changes
    return build_runner(EngineConfig(format="safetensors", paths=paths_of(folder), **settings))


def texts(lengths: list[int], seed: int = 0, vocab: int = 99, pairs: bool = False) -> list[Text]:
    """Random ids, lengths rising; of pairs, the second segment begins in the middle."""
    random = np.random.default_rng(seed)
    ids = [random.integers(2, vocab, length).astype(np.int32) for length in sorted(lengths)]
    return [
        Text(None, index, part, len(part) // 2 if pairs else len(part))  # type: ignore[arg-type] # nobody's
        for index, part in enumerate(ids)
    ]
