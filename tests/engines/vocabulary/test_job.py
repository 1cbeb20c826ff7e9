"""The child as the platform runs it: files in, a model that the engine opens out."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.loader.weights import Weights
from engines.native.vocabulary import hf_export
from engines.native.vocabulary.__main__ import main
from engines.native.vocabulary.job import RECORD, Spec, run
from engines.protocol import Channel, ChildError
from tests import tiny_models

TERMS = ["quantitative easing", "市盈率"]


class Silent(Channel):
    def _send(self, kind: str, **fields: Any) -> None:
        pass


def gguf(tmp_path: Path) -> Spec:
    path = tiny_models.write_gguf(tmp_path / "tiny.gguf")
    return Spec({"tiny.gguf": str(path)}, "gguf", TERMS, staging=str(tmp_path / "out"))


def safetensors(tmp_path: Path, **options: Any) -> Spec:
    folder = tiny_models.write_safetensors(tmp_path / "tiny", **options)
    paths = {path.name: str(path) for path in folder.iterdir()}
    return Spec(paths, "safetensors", TERMS, staging=str(tmp_path / "out"))


def result(spec: Spec, report: dict[str, Any]) -> dict[str, str]:
    """Paths of the new version's files."""
    made = {item["name"]: str(Path(spec.staging) / item["name"]) for item in report["files"]}
    return made | {name: spec.paths[name] for name in report["kept"]}


@pytest.mark.parametrize("source", [gguf, safetensors])
def test_the_result_is_the_base_with_new_rows(source, tmp_path):
    spec = source(tmp_path)
    report = run(spec, Silent())
    assert report["vocabulary"] == {"before": 259, "after": 262, "rows_before": 259, "rows": 320}
    base, made = open_model(spec.format, spec.paths), open_model("safetensors", result(spec, report))
    assert made.config.vocab == 320
    with Weights(base) as old, Weights(made) as new:
        before, after = (one.read("embed.weight", torch.float32) for one in (old, new))
        assert torch.equal(after[:259], before)
        tokenizer, _ = load_tokenizer(base)
        for place, text in enumerate([" quantitative easing", "quantitative easing", "市盈率"]):
            pieces = tokenizer.encode(text, add_special_tokens=False).ids
            assert torch.equal(after[259 + place], before[pieces].double().mean(0).float())
        for name in ("layers.0.v.weight", "layers.0.down.weight", "norm.weight"):
            assert torch.equal(old.read(name, torch.float32), new.read(name, torch.float32))


@pytest.mark.parametrize("source", [gguf, safetensors])
def test_special_tokens_template_and_ids_are_the_bases(source, tmp_path):
    spec = source(tmp_path)
    old, facts = load_tokenizer(open_model(spec.format, spec.paths))
    new, found = load_tokenizer(open_model("safetensors", result(spec, run(spec, Silent()))))
    assert (found.bos_id, found.eos_ids, found.add_bos, found.special_ids, found.chat_template) == (
        facts.bos_id, facts.eos_ids, facts.add_bos, facts.special_ids, facts.chat_template,
    )  # fmt: skip
    text = "<|start|>no terms 12 here\n  ab<|im_end|>"
    assert new.encode(text, add_special_tokens=False).ids == old.encode(text, add_special_tokens=False).ids
    assert new.encode("a quantitative easing").ids[-1] == 259


def test_rows_of_q_and_k_come_in_the_order_of_transformers(tmp_path):
    """The GGUF holds them as they are there already (the tiny model is written unpermuted), so the loader's own
    reordering of both must give the same: that is what makes greedy answers equal."""
    spec = gguf(tmp_path)
    made = open_model("safetensors", result(spec, run(spec, Silent())))
    base = open_model("gguf", spec.paths)
    assert base.config.rope.interleaved
    assert not made.config.rope.interleaved
    with Weights(base) as old, Weights(made) as new:
        for name in ("q", "k"):
            rows = old.read(f"layers.0.{name}.weight", torch.float32).view(-1, tiny_models.HEAD_DIM, tiny_models.HIDDEN)
            halves = torch.cat([rows[:, 0::2], rows[:, 1::2]], 1).flatten(0, 1)
            assert torch.equal(new.read(f"layers.0.{name}.weight", torch.float32), halves)


def test_of_safetensors_only_what_changes_is_written(tmp_path):
    spec = safetensors(tmp_path)
    report = run(spec, Silent())
    written = {item["name"] for item in report["files"]}
    assert written == {"config.json", "model.safetensors", "tokenizer.json", RECORD}
    assert report["kept"] == ["tokenizer_config.json"]


def test_an_untied_head_in_another_shard_grows_and_the_index_says_so(tmp_path):
    spec = safetensors(tmp_path)
    folder = Path(spec.paths["config.json"]).parent
    weights = load_file(folder / "model.safetensors")
    head = np.random.default_rng(1).standard_normal((tiny_models.VOCAB, tiny_models.HIDDEN)).astype(np.float32)
    (folder / "model.safetensors").unlink()
    embedding = weights.pop("model.embed_tokens.weight")
    shards = {"a.safetensors": {"model.embed_tokens.weight": embedding}, "b.safetensors": weights}
    shards["c.safetensors"] = {"lm_head.weight": head}
    for name, content in shards.items():
        save_file(content, folder / name)
    size = sum(array.nbytes for content in shards.values() for array in content.values())
    index = {"metadata": {"total_size": size}, "weight_map": {k: n for n, content in shards.items() for k in content}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config = json.loads((folder / "config.json").read_text()) | {"tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config))
    spec = replace(spec, paths={path.name: str(path) for path in folder.iterdir()})
    report = run(spec, Silent())
    assert "b.safetensors" in report["kept"]
    paths = result(spec, report)
    grown = load_file(paths["c.safetensors"])["lm_head.weight"]
    pieces = Tokenizer.from_file(spec.paths["tokenizer.json"]).encode("市盈率").ids
    assert np.array_equal(grown[:259], head)
    assert np.array_equal(grown[261], head[pieces].astype(np.float64).mean(0).astype(np.float32))
    total = json.loads(Path(paths["model.safetensors.index.json"]).read_text())["metadata"]["total_size"]
    assert total == size + 2 * (320 - 259) * tiny_models.HIDDEN * 4


def test_a_model_that_was_grown_grows_again(tmp_path):
    spec = safetensors(tmp_path)
    first = result(spec, run(spec, Silent()))
    again = replace(spec, paths=first, terms=["EBITDA"], staging=str(tmp_path / "again"))
    report = run(again, Silent())
    assert report["vocabulary"] == {"before": 262, "after": 264, "rows_before": 320, "rows": 320}
    record = json.loads((Path(again.staging) / RECORD).read_text())
    assert [token["id"] for token in record["tokens"]] == [259, 260, 261, 262, 263]
    with pytest.raises(ChildError, match="one token already"):
        run(replace(again, terms=["市盈率"]), Silent())


def test_work_that_was_cut_off_goes_on_with_the_files_that_are_whole(tmp_path):
    spec = gguf(tmp_path)
    first = run(spec, Silent())
    weights = Path(spec.staging) / "model.safetensors"
    begun = weights.stat().st_mtime_ns
    (Path(spec.staging) / RECORD).unlink()
    (Path(spec.staging) / "model-00002.safetensors.part").write_bytes(b"half")
    assert run(spec, Silent()) == first
    assert weights.stat().st_mtime_ns == begun
    run(replace(spec, terms=["EBITDA"]), Silent())  # other work: nothing of the old
    assert weights.stat().st_mtime_ns != begun
    assert not (Path(spec.staging) / "model-00002.safetensors.part").exists()


def test_a_corpus_alone_gives_candidates_and_their_saving(tmp_path):
    spec = gguf(tmp_path)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the discounted cash flow of a bond\n" * 8 + "the yield curve\n" * 6)
    report = run(replace(spec, terms=[], corpus=str(corpus), mine=2, staging=""), Silent())
    assert [row["term"] for row in report["terms"]] == ["discounted cash flow", "yield curve"]
    assert "files" not in report
    saving = report["saving"]
    assert saving["before"] - saving["after"] == sum(row["saved"] for row in report["terms"])
    assert (saving["lines"], saving["inexact_lines"]) == (14, 0)


def test_a_candidate_that_others_leave_nothing_to_is_not_taken(tmp_path):
    """ "debt obligation fell hard" and "collateralized debt obligation" share words; only one can have them."""
    spec = gguf(tmp_path)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("collateralized debt obligation fell hard\n" * 9 + "a yield curve\n" * 6)
    report = run(replace(spec, terms=[], corpus=str(corpus), mine=3, staging=""), Silent())
    assert all(row["count"] >= 5 for row in report["terms"])
    assert "yield curve" in [row["term"] for row in report["terms"]]
    with pytest.raises(ChildError, match="10 times or more"):
        run(replace(spec, terms=[], corpus=str(corpus), mine=3, min_count=10, staging=""), Silent())


def test_examples_are_different_lines(tmp_path):
    spec = gguf(tmp_path)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("quantitative easing\n" * 9 + "the 市盈率\n" * 6)
    report = run(replace(spec, corpus=str(corpus), staging=""), Silent())
    assert [one["text"] for one in report["saving"]["examples"]] == ["quantitative easing", "the 市盈率"]


def test_a_smaller_dtype_of_a_gguf_model(tmp_path):
    spec = replace(gguf(tmp_path), dtype="bfloat16")
    made = open_model("safetensors", result(spec, run(spec, Silent())))
    assert made.tensors["embed.weight"].type == "BF16"
    assert made.tensors["norm.weight"].type == "F32"


def test_errors_reach_the_parent_in_the_childs_own_words(tmp_path, monkeypatch, capsys):
    spec = gguf(tmp_path)
    body = {"v": 1, "paths": spec.paths, "format": "gguf", "terms": ["", "x"]}
    code, last = _main(body, monkeypatch, capsys)
    assert (code, last["type"], last["code"]) == (1, "error", "bad_terms")
    assert "terms[0] ('') is empty" in last["message"]
    code, last = _main(body | {"terms": ["EBITDA"]}, monkeypatch, capsys)
    assert (code, last["type"], last["data"]["vocabulary"]["after"]) == (0, "report", 261)
    code, last = _main(body | {"terms": "EBITDA"}, monkeypatch, capsys)
    assert (code, last["code"]) == (1, "bad_spec")


def _main(body, monkeypatch, capsys) -> tuple[int, dict[str, Any]]:
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(body)))
    code = main()
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_model_that_scales_its_heads_rows_is_refused(tmp_path):
    spec = safetensors(tmp_path)
    path = Path(spec.paths["config.json"])
    config = json.loads(path.read_text())
    weights = load_file(spec.paths["model.safetensors"])
    q, k, v = (weights.pop(f"model.layers.0.self_attn.{name}_proj.weight") for name in "qkv")
    k, v = np.repeat(k, 2, 0), np.repeat(v, 2, 0)
    weights["model.layers.0.self_attn.W_pack.weight"] = np.concatenate([q, k, v])
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    save_file(weights, spec.paths["model.safetensors"])
    baichuan = {"model_type": "baichuan", "z_loss_weight": 0.0, "tie_word_embeddings": False, "num_key_value_heads": 4}
    path.write_text(json.dumps(config | baichuan))
    with pytest.raises(ChildError, match="scales the head's rows"):
        run(spec, Silent())


def test_a_gguf_configuration_that_config_json_cannot_say_is_refused(tmp_path):
    spec = gguf(tmp_path)
    files = open_model("gguf", spec.paths)
    strange = replace(files, config=replace(files.config, logit_scale=0.5))
    _, facts = load_tokenizer(files)
    with Weights(strange) as weights, pytest.raises(ChildError, match="logit_scale"):
        hf_export.Export(strange, weights, "auto").config_json(facts, 320)


def test_a_quantized_table_is_refused_and_quantized_layers_stay_as_they_are(tmp_path):
    spec = safetensors(tmp_path)
    folder = Path(spec.paths["config.json"]).parent
    state = load_file(folder / "model.safetensors")

    def quantize(name: str) -> dict[str, np.ndarray]:
        weight = state[name]
        scales = np.abs(weight).max(1, keepdims=True) / 127
        return {name: np.round(weight / scales).astype(np.int8), f"{name}_scale": scales.astype(np.float32)}

    def written(names: list[str]) -> None:
        made = dict(state)
        for name in names:
            made |= quantize(name)
        save_file(made, folder / "model.safetensors")
        config = json.loads((folder / "config.json").read_text())
        weights = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
        targets = [name.removesuffix(".weight") for name in names]
        groups = {"group_0": {"targets": targets, "weights": weights}}
        quantization = {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": groups}
        (folder / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}))

    layers = sorted(name for name in state if name.endswith("_proj.weight"))
    written(layers)
    made = open_model("safetensors", result(spec, run(spec, Silent())))
    with Weights(open_model("safetensors", spec.paths)) as old, Weights(made) as new:
        for name in ("layers.0.v.weight", "layers.0.down.weight"):
            assert torch.equal(old.quantized(name).values, new.quantized(name).values)
    written([*layers, "model.embed_tokens.weight"])
    with pytest.raises(ChildError, match="model: quantized embedding table; a new token's row is a mean"):
        run(replace(spec, staging=str(tmp_path / "again")), Silent())
