"""Imports of models that give numbers and no text: which files they bring, and what the registry says they are for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models
from tursiops.deployments.specs import shape_of
from tursiops.registry.importer.choose import choose, stored_name
from tursiops.registry.models import Version

from engines.native.pooling.config import Head, Pool, Task
from engines.native.pooling.files import encoder_config
from engines.native.pooling.names import expected_shapes, file_names
from tests import tiny_models

CONFIG = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
    "vocab_size": 4,
}


def _bert(folder: Path) -> Path:
    """A whole tiny embedding model, as the hub holds it."""
    config, head = encoder_config(CONFIG), Head(Task.EMBED, Pool.CLS)
    shapes = {file_names(name, config)[0]: shape for name, shape in expected_shapes(config, head).items()}
    save_file({name: np.ones(shape, np.float32) for name, shape in shapes.items()}, folder / "model.safetensors")
    words = {word: index for index, word in enumerate(("[UNK]", "[CLS]", "[SEP]", "cat"))}
    Tokenizer(models.WordLevel(words, unk_token="[UNK]")).save(str(folder / "tokenizer.json"))
    steps = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in steps]
    (folder / "1_Pooling").mkdir()
    for name, content in (
        ("config.json", CONFIG),
        ("modules.json", modules),
        ("1_Pooling/config.json", {"pooling_mode_cls_token": True}),
        ("sentence_bert_config.json", {"max_seq_length": 32}),
    ):
        (folder / name).write_text(json.dumps(content))
    return folder


@pytest.mark.django_db
def test_an_embedding_model_brings_its_pooling_and_says_what_it_is_for(imported, tmp_path):
    job = imported("path", str(_bert(tmp_path)), name="embedder")
    version = Version.objects.select_related("model").get(pk=job.subject_id)
    assert (version.state, version.reason, version.architecture) == ("ready", "", "bert")
    assert version.model.task == "feature-extraction"
    assert (shape_of(version).task, version.shape["context_length"]) == ("embed", 32)
    assert set(version.files.values_list("name", flat=True)) == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "modules.json",
        "1_Pooling__config.json",
        "sentence_bert_config.json",
    }


@pytest.mark.django_db
def test_a_model_that_generates_stays_one(imported, tmp_path):
    job = imported("path", str(tiny_models.write_gguf(tmp_path / "tiny.gguf")))
    version = Version.objects.select_related("model").get(pk=job.subject_id)
    assert (version.model.task, shape_of(version).task) == ("text-generation", "generate")


def test_versions_from_before_models_had_a_task_generate():
    version = Version(architecture="llama", shape={"architecture": "llama", "layers": 2})
    assert (shape_of(version).task, shape_of(version).hidden) == ("generate", 0)


def test_only_the_poolings_folder_is_taken_from_a_repository():
    names = ["model.safetensors", "config.json", "1_Pooling/config.json", "2_Dense/config.json", "onnx/config.json"]
    assert choose(names).names == ["1_Pooling/config.json", "config.json", "model.safetensors"]
    assert stored_name("1_Pooling/config.json") == "1_Pooling__config.json"
    assert stored_name("sub/model.gguf") == "model.gguf"
