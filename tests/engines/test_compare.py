"""Layer-by-layer comparison: nothing between equals, the layer at fault between others; transformers' hidden states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engines.native import compare
from engines.native.config import EngineConfig
from engines.native.runner import ModelRunner, build_runner
from tests.tiny_models import write_safetensors

IDS = [5, 9, 60, 3, 77, 12, 41, 8, 30, 30, 2]


def saved(folder: Path, change: int = -1) -> Path:
    """Three layers; with `change` the MLP of that layer is another."""
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=96, **shape, num_key_value_heads=2, initializer_range=0.3))
    if change >= 0:
        with torch.no_grad():
            model.model.layers[change].mlp.down_proj.weight.mul_(1.05)
    model.save_pretrained(folder)
    return folder


def traced(folder: Path) -> compare.Trace:
    return compare.trace(runner_of(folder), IDS)


def runner_of(folder: Path) -> ModelRunner:
    paths = {path.name: str(path) for path in folder.iterdir()}
    config = EngineConfig(format="safetensors", paths=paths, device="cpu", dtype="float32", max_model_len=64)
    return build_runner(config)


@torch.inference_mode()
def test_a_trace_is_transformers_hidden_states(tmp_path):
    found = traced(saved(tmp_path / "a"))
    model = LlamaForCausalLM.from_pretrained(tmp_path / "a", dtype=torch.float32).eval()
    wanted = model(torch.tensor([IDS]), output_hidden_states=True)
    for layer, hidden in zip(found.layers[:-1], wanted.hidden_states[1:-1], strict=True):  # the last one is normed
        torch.testing.assert_close(layer, hidden[0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found.logprobs, wanted.logits[0].log_softmax(-1), atol=1e-4, rtol=1e-4)


def test_equals_have_no_difference_and_a_change_shows_from_its_layer_on(tmp_path):
    a = traced(saved(tmp_path / "a"))
    same = compare.compare(a, traced(saved(tmp_path / "b")), IDS)
    assert [each.relative_error for each in same.layers] == [0, 0, 0]
    assert (same.kl, same.same_top, same.first_change) == (0, 1, -1)
    assert same.perplexity[0] == same.perplexity[1]
    other = compare.compare(a, traced(saved(tmp_path / "c", change=1)), IDS)
    assert other.layers[0].relative_error == 0
    assert other.layers[1].relative_error > 1e-3
    assert other.layers[1].least_cosine < 1
    assert other.kl > 0
    assert [each.own_error for each in other.layers] == [None, None, None]


def test_the_error_of_its_own_is_in_the_changed_layer_alone(tmp_path):
    a = traced(saved(tmp_path / "a"))
    changed = runner_of(saved(tmp_path / "c", change=1))
    b = compare.trace(changed, IDS)
    found = compare.compare(a, b, IDS, compare.trace(changed, IDS, a.layers[:-1]))
    accumulated, own = zip(*((each.relative_error, each.own_error) for each in found.layers), strict=True)
    assert accumulated[2] > 1e-3  # what came from the layer before
    assert own[1] == accumulated[1] > 1e-3
    assert own[0] == 0
    assert own[2] < 1e-6


def test_the_command_prints_a_table_and_writes_figures(tmp_path, capsys):
    models = [write_safetensors(tmp_path / name, seed=seed) for name, seed in (("a", 0), ("b", 1))]
    arguments = [*map(str, models), "--other-dtype", "float32", "--json", str(tmp_path / "out.json")]
    assert compare.main(arguments) == 0
    assert "KL" in capsys.readouterr().out
    body = json.loads((tmp_path / "out.json").read_text())
    assert body["kl"] > 0
    assert [layer["own_error"] > 0 for layer in body["layers"]] == [True]


def test_models_that_cannot_be_compared_are_told_apart(tmp_path, capsys):
    a = traced(saved(tmp_path / "a"))
    with pytest.raises(ValueError, match="not of one shape"):
        compare.compare(a, compare.Trace(a.layers[:2], a.logprobs), IDS)
    (tmp_path / "empty").mkdir()
    model = write_safetensors(tmp_path / "m")
    assert compare.main([str(model), str(tmp_path / "empty")]) == 2
    assert "compare:" in capsys.readouterr().err
