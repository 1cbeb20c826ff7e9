"""SmolLM2 with domain tokens in the engine: greedy answers to prompts without terms are transformers' of the base."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.native.config import EngineConfig
from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.offline import Offline
from engines.native.request import SamplingParams
from engines.native.serve.detokenize import Detokenizer
from engines.native.vocabulary.job import Spec, run
from tests.engines.vocabulary.test_job import Silent, result
from tests.engines.weights import golden, smollm2

pytestmark = [pytest.mark.weights, pytest.mark.slow, pytest.mark.timeout(900)]

TERMS = ["quantitative easing", "collateralized debt obligation", "EBITDA", "市盈率", "基点", "Société Générale"]
TEXT = "The EBITDA of Société Générale fell by 40 基点; quantitative easing (EBITDA) ended. 市盈率很高 👍"


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    base = {"model.gguf": str(smollm2())}
    spec = Spec(base, "gguf", TERMS, staging=str(tmp_path_factory.mktemp("grown") / "out"))
    return result(spec, run(spec, Silent()))


def test_greedy_answers_without_terms_are_the_bases_and_terms_take_fewer_tokens(paths):
    base, _ = load_tokenizer(open_model("gguf", {"model.gguf": str(smollm2())}))
    files = open_model("safetensors", paths)
    grown, _ = load_tokenizer(files)
    assert all(grown.encode(case["prompt"]).ids == case["prompt_token_ids"] for case in golden())
    ids = grown.encode(TEXT, add_special_tokens=False).ids
    assert len(ids) <= len(base.encode(TEXT, add_special_tokens=False).ids) - 15
    assert Detokenizer(grown, files.config.vocab).text(ids) == TEXT
    engine = Offline(
        EngineConfig(
            format="safetensors",
            paths=paths,
            device="cpu",
            dtype="float32",
            max_model_len=512,
            max_num_seqs=8,
            kv_cache_bytes=64 * 2**20,
        )
    )
    cases = [case for case in golden() if case["min_margin"] > 0.01][:3]
    prompts = [case["prompt_token_ids"] for case in cases]
    answers = engine.generate([*prompts, ids], SamplingParams(temperature=0.0, max_tokens=10))
    for case, answer in zip(cases, answers, strict=False):
        wanted = case["output_token_ids"][:10]
        assert answer.token_ids[: len(wanted)] == wanted
    assert max(answers[-1].token_ids) < 49152  # nor does a prompt with terms make it say one


def test_files_are_where_transformers_looks_for_them(paths):
    from transformers import AutoConfig, AutoTokenizer

    folder = Path(paths["config.json"]).parent
    assert AutoConfig.from_pretrained(folder).vocab_size == 49216
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    ours, _ = load_tokenizer(open_model("safetensors", paths))
    assert ids == ours.encode(TEXT, add_special_tokens=False).ids
    assert tokenizer.decode(ids) == TEXT
