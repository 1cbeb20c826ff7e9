"""Whole models through the built-in back end: tiny random ones, of architectures whose weights the loader changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from engines.native.loader.model_files import open_model
from engines.native.quant.scheme import ActivationScheme, KvScheme, LinearScheme, WeightScheme
from plugins.quantization.fold import Folds
from plugins.quantization.model import Source
from plugins.quantization.observe import Hessian, Stream
from plugins.quantization.recipe import GROUPS, QuantizationFailed, Recipe, quantize
from plugins.quantization.simulate import rounded, text_losses
from tests.engines.models.harness import saved, transformers_model
from tests.tiny_models import write_gguf

INT4 = LinearScheme(WeightScheme("int", 4, "group", 16))
SHAPES = {"num_hidden_layers": 2, "intermediate_size": 96}
MODELS = {
    "llama": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "gemma2": ("gemma2", {"head_dim": 16, "tie_word_embeddings": True, "sliding_window": 9}),
    "phi3": ("phi3", {}),
    "glm4": ("glm4", {"head_dim": 16, "attention_bias": False}),
    "cohere": ("cohere", {"tie_word_embeddings": True, "logit_scale": 0.25}),
    "qwen3": ("qwen3", {"head_dim": 16}),
}
IDS = torch.randint(96, (12, 24), generator=torch.Generator().manual_seed(0))


class Kept:
    """A sink in memory."""

    def __init__(self):
        self.layers, self.table = [], None

    def take(self, layer):
        self.layers.append(layer)

    def finished(self, index):
        return self.layers[index]

    def embedding(self, table):
        self.table = table


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Name → (files, transformers' model, its folder)."""
    found = {}
    for name, (kind, changes) in MODELS.items():
        folder = tmp_path_factory.mktemp(name)
        model = transformers_model(kind, name, **SHAPES, **changes)
        found[name] = open_model("safetensors", saved(model, folder)), model, folder
    return found


@pytest.fixture(scope="module")
def llama(models):
    return models["llama"][0]


def done(files, recipe, ids=IDS, said=lambda share, doing: None):
    sink = Kept()
    quantize(files, recipe, ids, sink, said)
    return sink


def reference(model, ids=IDS):
    with torch.inference_mode():
        logits = model(ids).logits
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")


@pytest.mark.parametrize("name", MODELS)
def test_layers_taken_apart_compute_what_transformers_does(models, name):
    files, model, _ = models[name]
    losses = text_losses(files, done(files, Recipe(), None).layers, IDS)
    torch.testing.assert_close(losses.flatten().float(), reference(model), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_handed_over_is_the_model_under_the_checkpoint_s_own_names(models, name):
    """Its dequantized weights, put into transformers' model, give the losses that the passes had."""
    files, model, _ = models[name]
    sink = done(files, Recipe(INT4, "gptq"))
    with Source(files, 1) as source:
        state = {
            file_name: layer.linears[ours].dequantize(torch.float32)
            for layer in sink.layers
            for ours in layer.linears
            for file_name in [files.tensors[f"{ours}.weight"].name]
        }
        assert len(state) == 2 * sum(len(source.members(group)) for group in GROUPS)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model.load_state_dict(before | state)
    try:
        wanted = reference(model)
    finally:
        model.load_state_dict(before)
    assert not torch.allclose(wanted, reference(model), atol=1e-2)
    torch.testing.assert_close(text_losses(files, sink.layers, IDS).flatten().float(), wanted, rtol=1e-3, atol=1e-3)


def test_gguf_is_quantized_as_the_checkpoint_that_it_becomes(tmp_path):
    files = open_model("gguf", {"m.gguf": str(write_gguf(tmp_path / "m.gguf"))})
    sink = done(files, Recipe(LinearScheme(WeightScheme("int", 8, "channel"))))
    with Source(files, 1) as source:
        assert source.config.architecture == "llama"
        assert not source.config.rope.interleaved
        q = source.parts(0)["q.weight"]
    made = sink.layers[0].linears["layers.0.q"].dequantize()
    torch.testing.assert_close(made, q, rtol=0, atol=float(q.abs().max()) / 250)


@pytest.mark.parametrize("smoothing", ["awq", "smoothquant"])
@pytest.mark.parametrize("name", MODELS)
def test_folded_factors_leave_the_function_as_it_is(models, name, smoothing, monkeypatch):
    """The factors of a real search, without the rounding after it."""
    files, model, _ = models[name]
    monkeypatch.setattr("plugins.quantization.layer.quantized_group", lambda *_: ({}, None))
    applied = []
    apply = Folds.apply
    monkeypatch.setattr(Folds, "apply", lambda self, *rest: (applied.append(rest[2]), apply(self, *rest))[1])
    sink = done(files, Recipe(INT4, smoothing=smoothing))
    assert len(applied) == 2 * (3 if name == "cohere" else 4)
    assert any(float((factors - 1).abs().max()) > 0.1 for factors in applied)
    assert all("layers.1.input_norm.weight" in layer.floats for layer in sink.layers[1:])
    torch.testing.assert_close(
        text_losses(files, sink.layers, IDS).flatten().float(), reference(model), rtol=1e-3, atol=1e-3
    )


def test_each_method_loses_less_than_rounding_to_nearest(llama):
    unchanged = text_losses(llama, done(llama, Recipe(), None).layers, IDS)

    def moved(**how):
        """How far the losses of the text move."""
        return float((text_losses(llama, done(llama, Recipe(INT4, **how)).layers, IDS) - unchanged).square().mean())

    nearest = moved()
    assert moved(rounding="gptq") < 0.6 * nearest
    assert moved(smoothing="awq", clip=True) < nearest
    sink = done(llama, Recipe(INT4, "gptq"))
    reports = [report for layer in sink.layers for report in layer.reports]
    assert [report.group for report in reports] == [*GROUPS, *GROUPS]
    assert all(report.method == "gptq" and report.loss < report.rtn_loss for report in reports)


def test_hessians_are_of_the_quantized_prefix(llama):
    """What the second layer was calibrated on is what the finished first layer gives."""
    sink = done(llama, Recipe(INT4, "gptq"))
    first = replace(sink.layers[0], index=0)
    from plugins.quantization.algorithms.gptq import gptq
    from plugins.quantization.simulate import replay

    with Source(llama, 24) as source, torch.inference_mode():
        stream = Stream(source, IDS)
        replay(source, [stream], first)
        parts = source.parts(1)
        passing = stream.layer(1, source.raw(1, parts))
        seen = Hessian(48)
        for x in passing.inputs("qkv"):
            seen.add(x)
        whole = torch.cat([parts[f"{member}.weight"] for member in "qkv"])
        made, _ = gptq(whole, seen.matrix(), INT4.weight)
    theirs = torch.cat([sink.layers[1].linears[f"layers.1.{member}"].values for member in "qkv"])
    assert torch.equal(made.values, theirs)


def test_hessian_is_the_sum_of_products():
    x = torch.randn(50, 900)  # more columns than are summed at once
    seen = Hessian(900)
    seen.add(x[:20])
    seen.add(x[20:])
    torch.testing.assert_close(seen.matrix(), x.t() @ x, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(seen.mean, x.abs().mean(0))
    assert torch.equal(seen.greatest, x.abs().amax(0))


def test_inputs_that_do_not_fit_are_computed_again(llama, monkeypatch):
    whole = done(llama, Recipe(INT4, "gptq"))
    monkeypatch.setattr("plugins.quantization.observe.KEPT_BYTES", 0)
    again = done(llama, Recipe(INT4, "gptq"))
    for one, other in zip(whole.layers, again.layers, strict=True):
        for name, weight in one.linears.items():
            assert torch.equal(weight.values, other.linears[name].values)


@pytest.mark.parametrize("recipe", [Recipe(INT4, "gptq"), Recipe(INT4, smoothing="awq", clip=True)])
def test_a_resumed_job_makes_the_same(llama, recipe):
    whole = done(llama, recipe)
    resumed = Kept()
    resumed.layers = whole.layers[:1]
    quantize(llama, recipe, IDS, resumed, lambda share, doing: None, resume_from=1)
    assert len(resumed.layers) == 2
    for name, weight in whole.layers[1].linears.items():
        assert torch.equal(weight.values, resumed.layers[1].linears[name].values)


def test_kept_products_and_schemes_of_their_own(llama):
    eight = LinearScheme(WeightScheme("int", 8, "channel"))
    sink = done(llama, Recipe(INT4, keep=("layers.0.*",), schemes={"layers.1.down": eight, "layers.1.o": None}))
    assert not sink.layers[0].linears
    assert {report.method for report in sink.layers[0].reports} == {"kept"}
    kinds = {name: weight.scheme.bits for name, weight in sink.layers[1].linears.items()}
    assert kinds == {f"layers.1.{name}": 4 for name in ("q", "k", "v", "gate", "up")} | {"layers.1.down": 8}


def test_static_activations_and_kv_scales_are_what_the_text_showed(llama):
    static = LinearScheme(WeightScheme("float", 8, "tensor"), ActivationScheme("float", 8, False, "tensor"))
    for strategy in ("tensor", "head"):
        sink = done(llama, Recipe(static, kv=KvScheme("float", 8, strategy)))
    first = sink.layers[0]
    scales = [float(weight.input_scale) for name, weight in first.linears.items() if name[-1] in "qkv"]
    with Source(llama, 24) as source, torch.inference_mode():
        stream = Stream(source, IDS)
        raw = source.raw(0, source.parts(0))
        x = next(stream.layer(0, raw).inputs("qkv"))
        values = (x @ raw.qkv.t() + raw.qkv_bias)[:, -16:].view(-1, 2, 8)
    assert scales == pytest.approx([float(x.abs().max()) / 448] * 3)
    assert first.kv_scales[1].shape == (2,)
    torch.testing.assert_close(first.kv_scales[1], values.abs().amax((0, 2)) / 448, rtol=0.05, atol=0)  # v is rounded


def test_rounded_activations():
    x = torch.randn(5, 40) * torch.tensor([1.0, 10, 100, 0.1, 0])[:, None]
    by_token = rounded(x, ActivationScheme("int", 8, True, "token"))
    steps = x.abs().amax(1, keepdim=True) / 127
    assert bool(((by_token - x).abs() <= steps / 2 * 1.001).all())
    assert len(by_token[0].div(steps[0]).round().unique()) > 20
    grouped = rounded(x, ActivationScheme("float", 8, True, "group", 16))
    assert grouped.shape == x.shape
    assert float((grouped - x).abs().max()) <= 2**-4 * float(x.abs().max())
    with pytest.raises(ValueError, match="static"):
        rounded(x, ActivationScheme("int", 8, False, "tensor"))


def test_embedding(models):
    files, _, _ = models["gemma2"]
    sink = done(files, Recipe(embedding=True), None)
    assert sink.table.values.dtype == torch.int8
    assert sink.table.scales.shape == (96, 1)
    plain, table = text_losses(files, sink.layers, IDS), text_losses(files, sink.layers, IDS, sink.table)
    assert 0 < float((plain - table).abs().mean()) < 0.05


def damaged(models, tmp_path, name, value):
    _, _, folder = models["llama"]
    tensors = load_file(folder / "model.safetensors")
    tensors[name].view(-1)[7] = value
    save_file(tensors, tmp_path / "model.safetensors")
    paths = {"config.json": str(folder / "config.json"), "model.safetensors": str(tmp_path / "model.safetensors")}
    return open_model("safetensors", paths)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["model.layers.1.mlp.up_proj.weight", "model.norm.weight"])
def test_broken_weights_are_found_before_the_start(models, tmp_path, name, value):
    sink = Kept()
    with pytest.raises(QuantizationFailed, match=rf"tensor {name} has 1 values that are NaN or infinite"):
        quantize(damaged(models, tmp_path, name, value), Recipe(INT4), None, sink, lambda share, doing: None)
    assert not sink.layers


def test_a_hessian_that_nothing_helps_is_recorded_or_ends_the_job(llama, monkeypatch):
    """Case 28: with the product's name."""
    matrix = Hessian.matrix
    monkeypatch.setattr(Hessian, "matrix", lambda self: matrix(self) if len(self.total) != 96 else -matrix(self))
    sink = done(llama, Recipe(INT4, "gptq"))
    methods = {report.group: report.method for report in sink.layers[1].reports}
    assert methods == {"qkv": "gptq", "o": "gptq", "gate_up": "gptq", "down": "rtn_fallback"}
    assert "positive definite" in sink.layers[1].reports[3].note
    with pytest.raises(QuantizationFailed, match=r"layers\.0\.down: the Hessian isn't positive definite, even with"):
        done(llama, Recipe(INT4, "gptq", on_fallback="fail"))


def test_what_cannot_be_done_is_said_before_the_start(llama, tmp_path):
    with pytest.raises(QuantizationFailed, match=r"layers\.0\.qkv: groups of 128 don't divide its 48 inputs"):
        done(llama, Recipe(LinearScheme(WeightScheme("int", 4, "group", 128))))
    with pytest.raises(QuantizationFailed, match="needs calibration tokens"):
        done(llama, Recipe(INT4, "gptq"), None)
    moe = transformers_model("qwen3_moe", "moe", **SHAPES, moe_intermediate_size=32, num_experts_per_tok=2)
    with pytest.raises(QuantizationFailed, match=r"qwen3_moe has a mixture of experts.*llm_compressor"):
        done(open_model("safetensors", saved(moe, tmp_path)), Recipe(INT4))


def test_scales_that_overflow_their_dtype_name_the_layer(models, tmp_path):
    files = damaged(models, tmp_path, "model.layers.1.mlp.up_proj.weight", 1e30)
    with pytest.raises(QuantizationFailed, match=r"layers\.1\.up: its scales are NaN or infinite in float16"):
        done(files, Recipe(INT4, scale_dtype=torch.float16), None)
