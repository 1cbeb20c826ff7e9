"""Quantization-aware training: what is trained begins at what was rounded, and what is written is what was trained.

The worker's own libraries are in an environment of its own, which the nightly tests make; the rest runs in ours.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch.nn import functional

from engines.native.loader.model_files import open_model
from engines.native.quant.scheme import WeightScheme
from engines.native.quant.weight import unpack_nibbles
from engines.protocol import ChildError
from plugins.quantization import environments
from plugins.quantization.algorithms.grid import quantize_rtn
from plugins.quantization.backends import qat, qat_worker
from tests.plugins.quantization.quantized_for_tests import LAYERS, paths_of, run, spec_of, write_model

GROUP = 32


def rounded(symmetric, clip=True):
    torch.manual_seed(3)
    weight = torch.randn(48, 64)
    made = quantize_rtn(weight, WeightScheme("int", 4, "group", GROUP, symmetric=symmetric), clip, None, torch.bfloat16)
    codes = unpack_nibbles(made.values, 64).to(torch.int8)
    if made.zeros is None:
        return weight, made, codes - 8, torch.zeros(made.scales.shape, dtype=torch.int8)
    return weight, made, codes, made.zeros.to(torch.int8)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("centred", [True, False])
def test_training_begins_at_what_was_rounded(symmetric, centred):
    weight, made, codes, zero = rounded(symmetric)
    scale = made.scales.float()
    begun = qat_worker.latent(weight, codes, scale, zero, centred)
    steps = begun.view(48, -1, GROUP) / scale[..., None]
    least = -8 if symmetric else 0
    again = (steps.round() + zero[..., None]).clamp(least, least + 15).view_as(weight)
    assert torch.equal(again.to(torch.int8), codes)
    if not centred:
        kept = begun == weight
        assert kept.float().mean() > 0.9, "weights within their own step stay what they were"
        assert (begun - weight).abs().max() < (made.dequantize(torch.float32) - weight).abs().max()


@pytest.mark.parametrize("symmetric", [True, False])
def test_what_a_fake_quantizer_gave_is_what_the_file_holds_bit_for_bit(symmetric):
    """The formula of torchao's IntxFakeQuantizer: (clamp(round(w × (1/s)) + z) - z) × s."""
    weight, made, _, zero = rounded(symmetric)
    scale = (made.scales.float() * 1.07).to(torch.bfloat16).float()
    moved = (weight + 0.2 * torch.randn_like(weight)).view(48, -1, GROUP)
    least, s, z = (-8 if symmetric else 0), scale[..., None], zero.float()[..., None]
    fake = (((moved * (1.0 / s)).round() + z).clamp(least, least + 15) - z) * s
    fake = fake.view(48, 64)
    written = qat._trained(made, qat_worker.codes_of(fake, scale, zero), scale)
    assert torch.equal(written.dequantize(torch.float32), fake)
    assert not torch.equal(written.values, made.values)


def test_the_loss_is_the_divergence_from_the_model():
    torch.manual_seed(0)
    teacher, student = torch.randn(2, 5, 30), torch.randn(2, 5, 30)
    p, q = teacher.softmax(-1), student.softmax(-1)
    wanted = (p * (p.log() - q.log())).sum(-1).mean()
    assert torch.isclose(qat_worker.divergence(student, teacher, 1.0), wanted, rtol=1e-5)
    assert float(qat_worker.divergence(teacher, teacher, 2.0)) == pytest.approx(0.0, abs=1e-6)
    at_two = functional.kl_div(
        (student / 2).log_softmax(-1).flatten(0, 1), (teacher / 2).softmax(-1).flatten(0, 1), reduction="batchmean"
    )
    assert torch.isclose(qat_worker.divergence(student, teacher, 2.0), 4 * at_two, rtol=1e-5)
    layers = tuple(torch.randn(1, 3, 4) for _ in range(3))
    assert float(qat_worker.hidden_error(layers, layers)) == 0.0
    assert float(qat_worker.hidden_error(tuple(2 * each for each in layers), layers)) == pytest.approx(1.0)


def test_a_checkpoint_that_was_cut_off_is_passed_over(tmp_path):
    assert qat_worker.last_checkpoint(tmp_path) is None
    for step, state in ((2, "{}"), (10, "{}"), (12, '{"global'), (14, None)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if state is not None:
            (folder / qat_worker.STATE).write_text(state)
    assert qat_worker.last_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-2", "checkpoint-10"}


def test_bfloat16_is_refused_where_the_machine_has_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    assert qat_worker.device_of({"precision": "auto"}) == ("cuda", torch.float32)
    with pytest.raises(qat_worker.Failed) as caught:
        qat_worker.device_of({"precision": "bfloat16"})
    assert caught.value.args[0] == "no_bfloat16"
    assert "qat_precision" in caught.value.args[1]


# -- the job --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """One that has learned the tests' texts a little, so that rounding it loses something. Weights are large, and four
    bits coarse."""
    from transformers import LlamaForCausalLM

    place = tmp_path_factory.mktemp("model")
    folder = write_model(place / "base", initializer_range=0.3)
    texts = Path(spec_of(folder, place)["calibration"]).read_text().splitlines()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = tokenizer.encode("\n".join(json.loads(line)["text"] for line in texts), add_special_tokens=False).ids
    rows = torch.tensor(ids[: len(ids) // 64 * 64]).view(-1, 64)
    made = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    optimizer = torch.optim.AdamW(made.parameters(), lr=3e-3)
    torch.manual_seed(0)
    for _ in range(40):
        batch = rows[torch.randint(len(rows), (16,))]
        made(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    made.save_pretrained(folder)
    return folder


def asked(model, place, **recipe):
    chosen = {"scheme": "w4a16_gptq", "algorithm": "rtn", "backend": "qat", "scale_search": False, "group_size": GROUP}
    return spec_of(model, place, **{**chosen, "samples": 136, "tokens": 32, **recipe})


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """A function that puts a script in the worker's place, run by this Python."""

    def put(code):
        script = tmp_path / "worker.py"
        script.write_text(f"import json, sys\nspec = json.load(sys.stdin)\n{code}\n")
        monkeypatch.setattr(qat, "_WORKER", script)
        monkeypatch.setattr(qat, "ensure", lambda *_: Path(sys.executable))

    return put


UNTRAINED = """
from safetensors.torch import load_file, save_file
start = load_file(spec["start"])
save_file({name: tensor for name, tensor in start.items() if not name.endswith(".zero")}, spec["output"])
print(json.dumps({"step": 1, "steps": 1, "loss": 0.5}))
print(json.dumps({"done": True, "about": {"changed_codes": 0.0}}))
"""


@pytest.mark.slow
def test_a_training_that_wins_nothing_back_is_rejected_and_not_errored(model, tmp_path, worker):
    worker(UNTRAINED)
    report, said = run(asked(model, tmp_path))
    gap = report["training"]["gap"]
    assert gap["tokens"] >= 2000
    assert gap["texts"] >= 8
    assert gap["trained"] == gap["rounded"] > gap["model"] > 1
    assert [(rule["metric"], rule["value"], rule["passed"]) for rule in report["rules"]] == [
        ("gap_recovery", 0.0, False)
    ]
    assert {row["method"] for row in report["layers"]} == {"rtn, qat"}
    assert len(open_model("safetensors", paths_of(tmp_path / "version")).quantized) == 7 * LAYERS
    assert any(line["type"] == "metric" and line["name"] == "train_loss" for line in said)
    assert not list((tmp_path / "work").iterdir()), "what another attempt would go on from is gone"


@pytest.mark.slow
def test_what_the_worker_refuses_is_the_job_s_error(model, tmp_path, worker):
    worker('print(json.dumps({"error": "diverged", "message": "the loss is nan in step 3", "hint": "Lower it."}))')
    with pytest.raises(ChildError, match="the loss is nan in step 3") as caught:
        run(asked(model, tmp_path))
    assert (caught.value.code, caught.value.hint) == ("diverged", "Lower it.")
    assert not list(tmp_path.glob("version*"))


@pytest.mark.slow
def test_too_few_rows_are_refused_with_numbers(model, tmp_path):
    spec = asked(model, tmp_path)
    text = Path(spec["calibration"]).read_text().splitlines()
    Path(spec["calibration"]).write_text("\n".join(text[:35]))
    with pytest.raises(ChildError, match=r"of \d+ rows of 32 tokens, half kept to measure by, 1,\d+ tokens") as caught:
        run(spec)
    assert caught.value.code == "bad_calibration"


@pytest.mark.slow
@pytest.mark.parametrize("part", ["start.safetensors", "rows.npy"])
def test_a_disk_that_is_full_is_named_with_what_was_needed(model, tmp_path, worker, monkeypatch, part):
    worker("")
    monkeypatch.setattr(qat, "save_file", safetensors_on_a_full_disk if part == "start.safetensors" else save_file)
    monkeypatch.setattr(qat.np, "save", numpy_on_a_full_disk if part == "rows.npy" else np.save)
    with pytest.raises(ChildError, match="the disk is full") as caught:
        run(asked(model, tmp_path))
    assert caught.value.code == "disk_full"
    assert str(tmp_path / "work/qat" / part) in caught.value.message
    assert "are needed" in caught.value.message
    assert not list(tmp_path.glob("version*"))


# What they said of a tmpfs of 64 KiB. /dev/full is no place for the first: it writes beside and moves.


def safetensors_on_a_full_disk(*_):
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def numpy_on_a_full_disk(*_):
    raise OSError("100000 requested and 8176 written")


def test_the_worker_tells_a_full_disk_from_other_failures(tmp_path, monkeypatch):
    with pytest.raises(qat_worker.Failed) as caught, qat_worker.writing(tmp_path / "checkpoints", 12 * 2**20):
        safetensors_on_a_full_disk()
    code, message, hint = caught.value.args
    assert code == "disk_full"
    assert f"{tmp_path / 'checkpoints'} could not be written; 12 MiB are needed" in message
    assert "goes on at the last checkpoint" in hint
    with pytest.raises(RuntimeError, match="shapes"), qat_worker.writing(tmp_path, 1):
        raise RuntimeError("shapes differ")
    monkeypatch.setattr(qat_worker.shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
    with pytest.raises(qat_worker.Failed), qat_worker.writing(tmp_path, 1):
        raise RuntimeError("PytorchStreamWriter failed writing file data/3")
    with pytest.raises(torch.OutOfMemoryError), qat_worker.writing(tmp_path, 1):
        raise torch.OutOfMemoryError("no memory on the GPU")


@pytest.fixture(scope="module")
def environment():
    try:
        environments.ensure(qat.ENVIRONMENT, lambda share, text: None)
    except ChildError as error:
        if error.code != "no_index":
            raise
        pytest.skip(error.message)


KILLED = """
import importlib.util, os, signal
place = importlib.util.spec_from_file_location("real", {worker!r})
real = importlib.util.module_from_spec(place)
place.loader.exec_module(real)
said = real.say
def say(**fields):
    said(**fields)
    if fields.get("step") == 5:
        os.kill(os.getpid(), signal.SIGKILL)
real.say = say
sys.stdin = __import__("io").StringIO(json.dumps(spec))
sys.exit(real.main())
"""


@pytest.mark.nightly  # twice the imports of torchao and transformers' Trainer: 16 s of a processor each
def test_a_killed_training_goes_on_at_its_checkpoint_and_closes_the_gap(
    model, tmp_path, worker, environment, monkeypatch
):
    real = qat._WORKER
    asking = asked(model, tmp_path, samples=320, qat_steps=20, qat_rows=16, qat_learning_rate=0.002)
    worker(KILLED.format(worker=str(real)))
    monkeypatch.setattr(qat, "ensure", environments.ensure)
    with pytest.raises(ChildError):
        run(asking)
    monkeypatch.setattr(qat, "_WORKER", real)
    report, said = run(asking)
    training = report["training"]
    assert training["resumed_at_step"] == 4
    assert training["last_loss"] < training["first_loss"]
    assert report["rules"][0]["passed"], training["gap"]
    assert 0 < training["changed_codes"] < 0.9
    steps = [line["step"] for line in said if line["type"] == "metric" and line["name"] == "train_loss"]
    assert steps == list(range(5, 21))


@pytest.mark.nightly
def test_low_rank_training_behind_awq_closes_it_too(model, tmp_path, environment):
    recipe = {
        "scheme": "w4a16_awq",
        "algorithm": "",
        "qat_train": "lora",
        "samples": 320,
        "qat_steps": 40,
        "qat_rows": 16,
    }
    report, _ = run(asked(model, tmp_path, **recipe, qat_learning_rate=0.002, qat_hidden=0.1))
    assert report["training"]["gap"]["recovery"] > 0.1, report["training"]
    assert len(open_model("safetensors", paths_of(tmp_path / "version")).quantized) == 7 * LAYERS
    assert json.dumps(report)
