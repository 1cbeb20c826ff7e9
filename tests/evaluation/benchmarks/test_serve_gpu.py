"""The HTTP benchmark on a CPU: its processes, its formula and its files at the tiny shape."""

import json

import pytest

from engines.native.loader.model_files import open_model
from evaluation.benchmarks import serve_gpu, serve_model


@pytest.mark.slow
def test_the_tiny_shape_is_served_and_measured(tmp_path):
    arguments = ["--shape", "tiny", "--streams", "3", "--outputs", "12", "--rounds", "1"]
    assert serve_gpu.main([*arguments, "--out", str(tmp_path), "--device", "cpu", "--commit", "abc"]) == 0
    body = json.loads((tmp_path / "serve_gpu.cpu.json").read_text())
    rows = {row["metric"]: row["value"] for row in body["rows"]}
    assert rows["TPOT over HTTP / offline"] == pytest.approx(rows["TPOT over HTTP"] / rows["TPOT offline"])
    assert rows["API process, CPU per token"] > 0
    assert 0 < rows["tokens per read of a client"] <= 12


def test_every_id_of_the_made_tokenizer_is_text_of_its_own(tmp_path):
    from tokenizers import Tokenizer

    paths = serve_model.write("tiny", tmp_path)
    tokenizer = Tokenizer.from_file(paths["tokenizer.json"])
    texts = {tokenizer.id_to_token(token) for token in range(serve_model.TINY["vocab_size"])}
    assert len(texts) == serve_model.TINY["vocab_size"]
    assert open_model("safetensors", paths).config.vocab == serve_model.TINY["vocab_size"]
