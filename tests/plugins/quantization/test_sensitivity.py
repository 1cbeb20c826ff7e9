"""One fragile layer is planted: the ranking names it, the mixed recipe gives it its digits, the diagnosis finds it."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from engines.native.compare import Comparison, LayerDifference
from engines.native.loader.model_files import open_model
from engines.native.quant.scheme import LinearScheme, WeightScheme
from plugins.quantization import diagnose
from plugins.quantization.diagnose import outliers, suspects
from plugins.quantization.mixed import WHOLE, choose
from plugins.quantization.recipe import QuantizationFailed, Recipe, quantize
from plugins.quantization.sensitivity import sensitivity
from plugins.quantization.simulate import text_losses
from tests.engines.models.harness import saved, transformers_model
from tests.plugins.quantization.quantized_for_tests import write_model
from tests.plugins.quantization.test_recipe import Kept

OPTIONS = {
    "int4": LinearScheme(WeightScheme("int", 4, "group", 48)),
    "int8": LinearScheme(WeightScheme("int", 8, "channel")),
}
IDS = torch.randint(96, (16, 32), generator=torch.Generator().manual_seed(3))
FRAGILE = "layers.1.down"


def quiet(share, doing):
    assert 0 <= share <= 1
    assert doing


@pytest.fixture(scope="module")
def fragile(tmp_path_factory):
    """Every 48th input of one layer's down comes from rows of up that are a hundredth, with weights a hundredfold: the
    function is the same, but all other weights of such a group round to nothing."""
    folder = tmp_path_factory.mktemp("fragile")
    model = transformers_model("llama", "fragile", num_hidden_layers=3, intermediate_size=96)
    saved(model, folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][::48] /= 100
    tensors["model.layers.1.mlp.down_proj.weight"][:, ::48] *= 100
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return open_model("safetensors", {path.name: str(path) for path in folder.iterdir()})


def whole_bytes(files):
    return 2 * files.config.parameters()


def test_the_ranking_names_it(fragile):
    found = sensitivity(fragile, Recipe(), OPTIONS, IDS, quiet)
    assert len(found.losses) == 12
    assert found.tokens == 512
    (first, kl), (_, second) = found.ranking("int4")[:2]
    assert first == FRAGILE
    assert kl > 3 * second
    loss = found.losses[FRAGILE]["int4"]
    assert loss.measured
    assert loss.sqnr_db is not None
    assert loss.sqnr_db < 10
    assert loss.cosine < 0.9
    eight = found.losses["layers.0.o"]["int8"]
    assert not eight.measured
    assert 0 < eight.kl < 0.02 * found.losses["layers.0.o"]["int4"].kl
    assert found.whole[FRAGILE] == 2 * 48 * 96


def test_losses_are_those_of_the_product_alone(fragile):
    """The sweep's KL equals one that is computed from two whole passes."""
    found = sensitivity(fragile, Recipe(), OPTIONS, IDS, quiet)
    from plugins.quantization.model import Source
    from plugins.quantization.observe import Stream
    from plugins.quantization.simulate import replay

    def answers(recipe):
        sink = Kept()
        quantize(fragile, recipe, None, sink, quiet)
        with Source(fragile, 32) as source, torch.inference_mode():
            stream = Stream(source, IDS)
            for layer in sink.layers:
                replay(source, [stream], layer)
            return source.ends.head(stream.normed(slice(None))).log_softmax(-1)[3::4]

    name = "layers.0.gate_up"
    a, b = answers(Recipe()), answers(Recipe(schemes={name: OPTIONS["int4"]}))
    wanted = float((a.exp() * (a - b)).sum(-1).mean())
    assert found.losses[name]["int4"].kl == pytest.approx(wanted, rel=1e-3)


def test_the_mixed_recipe_recovers(fragile):
    budget = int(0.45 * whole_bytes(fragile))
    mixed = choose(fragile, Recipe(), OPTIONS, budget, IDS, quiet)
    best = mixed.plans[0]
    assert best.name == "knapsack"
    assert best.options[FRAGILE] != "int4"
    assert "int4" in best.options.values()
    unchanged, all_four, chosen = (
        text_losses(fragile, _layers(fragile, recipe), IDS)
        for recipe in (Recipe(), Recipe(OPTIONS["int4"]), mixed.recipe)
    )
    moved = [(losses - unchanged).square().mean().sqrt() for losses in (all_four, chosen)]
    assert moved[1] < 0.5 * moved[0]


def test_what_is_kept_stays_whole_and_a_budget_that_is_too_small_is_refused(fragile):
    budget = int(0.6 * whole_bytes(fragile))
    mixed = choose(fragile, Recipe(keep=("layers.2.*",)), OPTIONS, budget, IDS, quiet)
    assert {option for name, option in mixed.plans[0].options.items() if name.startswith("layers.2.")} == {WHOLE}
    with pytest.raises(QuantizationFailed, match="budget_bytes"):
        choose(fragile, Recipe(), OPTIONS, whole_bytes(fragile) // 10, IDS, quiet)


def _layers(files, recipe):
    sink = Kept()
    quantize(files, recipe, IDS, sink, quiet)
    return sink.layers


def test_outliers_name_the_channels_that_run_hot(tmp_path):
    model = transformers_model("llama", "hot", num_hidden_layers=2, intermediate_size=96)
    with torch.no_grad():
        model.model.layers[1].input_layernorm.weight[[5, 17]] = 400.0
    found = outliers(open_model("safetensors", saved(model, tmp_path)), IDS, quiet)
    assert [each.name for each in found[4:6]] == ["layers.1.qkv", "layers.1.o"]
    hot = found[4]
    assert {channel for channel, _ in hot.channels} == {5, 17}
    assert hot.count == 2
    assert hot.ratio > 100
    assert found[0].count == 0


def test_suspects_are_layers_whose_own_error_stands_out():
    own = [0.01, 0.012, 0.2, 0.009, 0.011]
    layers = [LayerDifference(index, 0.02 * index, error, 0.99, 3) for index, error in enumerate(own)]
    (found,) = suspects(Comparison(64, layers, 0.1, 0.2, 0.9, 3, (10.0, 12.0)))
    assert found.layer == 2
    assert found.keep == "layers.2"
    assert "by itself" in found.reason
    jumps = [0.01, 0.02, 0.03, 0.3, 0.31]
    layers = [LayerDifference(index, error, None, 0.99, 3) for index, error in enumerate(jumps)]
    (found,) = suspects(Comparison(64, layers, 0.1, 0.2, 0.9, 3, (10.0, 12.0)))
    assert found.layer == 3


def test_command_line_names_layer_and_channels(tmp_path, capsys):
    """A version whose last layer was damaged, of a model in which one channel runs hot."""
    reference = write_model(tmp_path / "reference")
    tensors = load_file(reference / "model.safetensors")
    tensors["model.layers.0.input_layernorm.weight"][9] = 300.0
    save_file(tensors, reference / "model.safetensors", {"format": "pt"})
    version = write_model(tmp_path / "version")
    tensors["model.layers.2.mlp.down_proj.weight"] *= -200
    save_file(tensors, version / "model.safetensors", {"format": "pt"})
    assert diagnose.main([str(reference), str(version)]) == 0
    said = capsys.readouterr().out
    assert "layer 2: it adds a relative error" in said
    assert "option keep: layers.2\n" in said
    assert "layers.0.qkv: 1 inputs reach" in said
    assert "9 (" in said
    assert diagnose.main([str(reference), str(tmp_path / "nothing")]) == 2
