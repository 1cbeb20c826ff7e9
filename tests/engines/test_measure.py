"""What a version is worth: perplexity against transformers' own, agreement with another version, refusals."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engines.native import measure, measure_job
from engines.native.measure_job import measured
from engines.protocol import Channel, ChildError
from tests.tiny_models import write_safetensors

TEXT = "the harbour town of Elvik lies where the river meets the sea, and ships come in with torn sails. " * 12


@pytest.fixture
def spec(tmp_path: Path) -> dict[str, Any]:
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    return {"model": side(write_safetensors(tmp_path / "a")), "device": "cpu", "text": str(text)}


def side(folder: Path) -> dict[str, Any]:
    return {"format": "safetensors", "paths": {path.name: str(path) for path in folder.iterdir()}, "dtype": ""}


def told(spec: dict[str, Any]) -> dict[str, Any]:
    return measured(spec, Channel(io.StringIO()))


@torch.inference_mode()
def test_perplexity_is_transformers_own(spec: dict[str, Any], tmp_path: Path) -> None:
    found = told(spec)
    width = 128 - measure.DECODED
    ids = measure.windows(measure.open_model("safetensors", spec["model"]["paths"]), TEXT)[0]
    assert {len(window) for window in ids} == {width}
    model = LlamaForCausalLM.from_pretrained(tmp_path / "a", dtype=torch.float32).eval()
    loss = [model(torch.tensor([window]), labels=torch.tensor([window])).loss.item() for window in ids]
    assert found["perplexity"] == pytest.approx(math.exp(sum(loss) / len(loss)), rel=1e-4)
    assert found["tokens"] == len(ids) * (width - 1)
    assert (found["dtype"], found["bos"], found["agreement"]) == ("float32", False, None)
    assert found["weights"] == pytest.approx((tmp_path / "a" / "model.safetensors").stat().st_size, rel=0.5)
    assert min(found["prefill"], found["decode"], found["process"]) > 0


def test_agreement_is_whole_with_itself_and_less_with_another(spec: dict[str, Any], tmp_path: Path) -> None:
    kept = str(tmp_path / "kept.npy")
    told({**spec, "keep": kept})
    same = told({**spec, "reference": kept})["agreement"]
    assert (same["kl"], same["same_top"]) == (0, 1)
    assert same["places"] % measure.PLACES == 0
    other = {**spec, "reference": kept, "model": side(write_safetensors(tmp_path / "b", seed=1))}
    less = told(other)["agreement"]
    assert less["kl_p99"] > less["kl"] > 0
    assert less["same_top"] < 0.9


def test_the_kept_logprobs_are_those_of_the_whole_vocabulary(spec: dict[str, Any], tmp_path: Path) -> None:
    kept = tmp_path / "kept.npy"
    told({**spec, "keep": str(kept)})
    found = torch.from_numpy(measure.np.load(kept))
    assert found.shape[1:] == (measure.PLACES, 259)
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(found.shape[:2]))


def test_a_token_that_both_rule_out_is_no_difference(tmp_path: Path) -> None:
    rows = torch.randn(8, 5)
    rows[:, 2] = -math.inf
    kept = tmp_path / "kept.npy"
    for keep, reference in ((kept, None), (None, kept)):
        scores = measure.Scores(5, 1, 8, keep, reference)
        scores._take(rows)
        scores.close()
    agreement = scores.agreement()
    assert agreement is not None
    assert (agreement.kl, agreement.same_top) == (0, 1)


def test_a_model_whose_logits_are_no_numbers_has_no_perplexity_and_agrees_with_none(
    spec: dict[str, Any], tmp_path: Path
) -> None:
    config = LlamaConfig(vocab_size=259, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128)  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.model.norm.weight.fill_(math.nan)
    model.save_pretrained(tmp_path / "a")
    reference = tmp_path / "reference.npy"
    told({**spec, "keep": str(reference), "model": side(write_safetensors(tmp_path / "b"))})
    found = told({**spec, "reference": str(reference), "model": side(tmp_path / "a")})
    assert found["perplexity"] is None
    agreement = found["agreement"]
    assert (agreement["kl"], agreement["kl_p99"], agreement["same_top"]) == (None, None, None)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"text": "/nowhere"}, "bad_spec"),
        ({"model": {"format": "gguf"}}, "bad_spec"),
        ({"device": "cuda"}, "cannot_measure"),
        ({"options": {"warp": 9}}, "cannot_measure"),
    ],
)
def test_what_cannot_be_measured_is_an_error_with_a_code(
    spec: dict[str, Any], change: dict[str, Any], code: str
) -> None:
    with pytest.raises(ChildError) as refused:
        told({**spec, **change})
    assert refused.value.code == code


def test_a_short_text_and_another_vocabulary_are_refused(spec: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("short")
    with pytest.raises(ChildError, match="5 tokens; one window of 96 is needed"):
        told(spec)
    (tmp_path / "text.txt").write_text(TEXT)
    other = tmp_path / "other.npy"
    measure.np.save(other, measure.np.zeros((1, measure.PLACES, 100), measure.np.float32))
    with pytest.raises(ChildError, match="100 tokens in its vocabulary"):
        told({**spec, "reference": str(other)})


def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(spec: dict[str, Any], monkeypatch) -> None:
    from engines.native import compare_job

    monkeypatch.setattr(compare_job.psutil, "virtual_memory", lambda: type("Memory", (), {"available": 2**20}))
    with pytest.raises(ChildError, match=r"the version needs .* in float32") as refused:
        measure_job.measured(spec, Channel(io.StringIO()))
    assert refused.value.code == "too_large"
