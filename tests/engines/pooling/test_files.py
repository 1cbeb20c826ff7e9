"""What a pooling model's files say: its task, its head, its tensors; and what is refused, by name."""

from __future__ import annotations

import json

import pytest
from safetensors.torch import load_file, save_file

from engines.api import LaunchSpec, ModelShape
from engines.native.contract import NativeEngine
from engines.native.inspect import inspect
from engines.native.loader.errors import BadModel
from engines.native.pooling.config import Pool, Task
from engines.native.pooling.files import open_pooling
from engines.native.pooling.task import core_module, task_of
from tests.engines.pooling import tiny
from tests.engines.pooling.minilm import minilm

GIB = 2**30


def _open(folder):
    return open_pooling("safetensors", tiny.paths_of(folder))


def _config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def bert(tmp_path):
    tiny.make(tmp_path, "bert")
    tiny.sentence_transformer(tmp_path, "mean", normalize=True, max_tokens=40)
    return tmp_path


@pytest.mark.parametrize(
    ("config", "modules", "task"),
    [
        ({"model_type": "bert", "architectures": ["BertModel"]}, False, Task.EMBED),
        ({"model_type": "xlm-roberta", "architectures": ["XLMRobertaForSequenceClassification"]}, False, Task.SCORE),
        ({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}, False, Task.GENERATE),
        ({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}, True, Task.EMBED),  # Qwen3-Embedding's
        ({"model_type": "mistral", "architectures": ["MistralModel"]}, False, Task.EMBED),
        ({"model_type": "llama"}, False, Task.GENERATE),
    ],
)
def test_task_of_the_files(tmp_path, config, modules, task):
    (tmp_path / "config.json").write_text(json.dumps(config))
    paths = {"config.json": str(tmp_path / "config.json")} | ({"modules.json": "x"} if modules else {})
    assert task_of("safetensors", paths) is task
    assert task_of("gguf", paths) is Task.GENERATE
    spec = {"spec": {"format": "safetensors"}, "local": {"paths": paths}}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    generating = core_module(tmp_path) == "engines.native.core"
    assert generating == (task is Task.GENERATE)


def test_unreadable_files_are_left_to_who_says_why(tmp_path):
    (tmp_path / "config.json").write_text("{")
    assert task_of("safetensors", {"config.json": tmp_path / "config.json"}) is Task.GENERATE
    assert core_module(tmp_path) == "engines.native.core"


def test_head_of_sentence_transformers_files(bert):
    files = _open(bert)
    assert (files.head.pool, files.head.normalize, files.max_tokens) == (Pool.MEAN, True, 40)


def test_files_without_folders_as_the_registry_keeps_them(bert):
    paths = tiny.paths_of(bert)
    paths["1_Pooling__config.json"] = paths.pop("1_Pooling/config.json")
    assert open_pooling("safetensors", paths).head.pool is Pool.MEAN


def test_newer_spelling_of_the_pooling(bert):
    (bert / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "cls", "include_prompt": True}))
    assert _open(bert).head.pool is Pool.CLS


def test_without_modules_encoders_take_the_mean_and_decoders_the_last(tmp_path):
    for kind, pool in (("bert", Pool.MEAN), ("qwen2", Pool.LAST)):
        (tmp_path / kind).mkdir()
        tiny.make(tmp_path / kind, kind)
        head = _open(tmp_path / kind).head
        assert (head.pool, head.normalize) == (pool, True)


@pytest.mark.parametrize(
    ("pooling", "named"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, "pooling_mode_mean_tokens and"),
        ({"pooling_mode": "weightedmean"}, "weightedmean"),
        ({"pooling_mode_mean_tokens": True, "include_prompt": False}, "include_prompt"),
        ({}, "nothing"),
    ],
)
def test_pooling_that_is_not_served(bert, pooling, named):
    (bert / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    with pytest.raises(BadModel, match=named) as caught:
        _open(bert)
    assert caught.value.code == "unknown_architecture"


def test_a_step_that_is_not_served(bert):
    steps = json.loads((bert / "modules.json").read_text())
    steps.append({"idx": 3, "name": "3", "path": "3_Dense", "type": "sentence_transformers.models.Dense"})
    (bert / "modules.json").write_text(json.dumps(steps))
    with pytest.raises(BadModel, match="'Dense' is not served"):
        _open(bert)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"hidden_act": "silu"}, "hidden_act is 'silu'"),
        ({"num_attention_heads": 7}, "no 7 equal heads"),
        ({"hidden_size": "48"}, "hidden_size is '48'"),
        ({"intermediate_size": 81}, "intermediate.dense.weight has shape"),
    ],
)
def test_encoder_that_is_not_served(bert, changes, named):
    _config(bert, **changes)
    with pytest.raises(BadModel, match=named):
        _open(bert)


def test_missing_and_surplus_tensors(bert):
    path = bert / "model.safetensors"
    tensors = load_file(path)
    save_file({name: tensor for name, tensor in tensors.items() if "layer.2.output.dense.bias" not in name}, path)
    with pytest.raises(BadModel, match=r"layer\.2\.output\.dense\.bias is missing"):
        _open(bert)
    save_file(tensors | {"encoder.layer.0.extra.weight": tensors["pooler.dense.weight"].clone()}, path)
    with pytest.raises(BadModel, match=r"encoder\.layer\.0\.extra\.weight has no place"):
        _open(bert)


def test_old_names_of_norms_and_a_larger_classs_prefix(bert):
    path = bert / "model.safetensors"
    wanted = tiny.runner(bert).run(tiny.texts([5, 9]))
    tensors = load_file(path)
    for new, old in (("Norm.weight", "Norm.gamma"), ("Norm.bias", "Norm.beta")):
        tensors = {name.replace(new, old): tensor for name, tensor in tensors.items()}
    save_file({f"bert.{name}": tensor for name, tensor in tensors.items()}, path)
    assert (tiny.runner(bert).run(tiny.texts([5, 9])) == wanted).all()


def test_classifier_of_several_labels_is_no_cross_encoder(tmp_path):
    tiny.make(tmp_path, "bert", score=True, num_labels=3)
    with pytest.raises(BadModel, match="3 labels"):
        _open(tmp_path)


def test_report_of_a_tiny_cross_encoder_and_its_fit(tmp_path):
    tiny.make(tmp_path, "bert", score=True)
    tiny.tokenizer(tmp_path)
    report = inspect({"paths": tiny.paths_of(tmp_path), "format": "safetensors"})
    shape = ModelShape(**report["shape"])
    assert (shape.architecture, shape.task, shape.layers, shape.context_length) == ("bert", "score", 3, 66)
    spec = LaunchSpec(instance_id="i", served_name="m", files=[], format="safetensors", device="cpu")
    fit = NativeEngine().fit(shape, spec, 0, GIB)
    assert (fit.fits, fit.kv_cache, fit.weights) == (True, 0, shape.parameters * 4)
    assert "too little" in NativeEngine().fit(shape, spec, 0, 1024).reason


@pytest.mark.weights
def test_report_of_minilm():
    report = inspect({"paths": minilm(), "format": "safetensors"})
    shape = ModelShape(**report["shape"])
    assert (shape.task, shape.context_length, shape.hidden, shape.parameters) == ("embed", 256, 384, 22_565_376)
    assert (report["license"], report["dtype"]) == ("apache-2.0", "float32")
