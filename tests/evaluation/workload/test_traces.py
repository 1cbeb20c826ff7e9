"""The published traces' formats: real rows, and what is wrong with others."""

from pathlib import Path

import pytest

from evaluation.schema import Trace
from evaluation.workload.errors import DatasetError
from evaluation.workload.traces import read

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:04.4249540,34,12
"""
BURSTGPT = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,a,2.5,ChatGPT,472,18,490,Conversation log
45,,1,ChatGPT,1087,230,1317,API log
118,b,0,GPT-4,417,0,417,Conversation log
"""
MOONCAKE = """{"timestamp": 0, "input_length": 1030, "output_length": 500, "hash_ids": [0, 1, 2]}
{"timestamp": 3000, "input_length": 512, "output_length": 490, "hash_ids": [0]}
"""


def trace(tmp_path: Path, text: str, form: str, **fields: object) -> Trace:
    path = tmp_path / "trace"
    path.write_text(text)
    return Trace(path=str(path), format=form, **fields)


def test_azure(tmp_path):
    rows = read(trace(tmp_path, AZURE, "azure", time_scale=2.0))
    assert [(row.prompt_tokens, row.output_tokens) for row in rows] == [(4808, 10), (3180, 8), (34, 12)]
    assert [row.offset_s for row in rows] == pytest.approx([0, 0.026, 0.222497], abs=1e-6)


def test_burstgpt_leaves_out_what_failed(tmp_path):
    rows = read(trace(tmp_path, BURSTGPT, "burstgpt"))
    assert [(row.offset_s, row.prompt_tokens, row.session) for row in rows] == [(0, 472, "a"), (40, 1087, "")]


def test_mooncake_and_its_cuts(tmp_path):
    rows = read(trace(tmp_path, MOONCAKE, "mooncake"))
    assert [(row.offset_s, row.hash_ids) for row in rows] == [(0, (0, 1, 2)), (3, (0,))]
    cut = read(trace(tmp_path, MOONCAKE, "mooncake", max_prompt_tokens=600, start_s=0, duration_s=3))
    assert [(row.prompt_tokens, row.hash_ids) for row in cut] == [(600, (0, 1))]


@pytest.mark.parametrize(
    ("text", "form", "said"),
    [
        ("", "azure", "line 1, field `TIMESTAMP`: has no such column"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nnow,1,1\n", "azure", "line 2, field `TIMESTAMP`: no time: 'now'"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,x,1\n", "azure", "field `ContextTokens`"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1\n", "azure", "line 2: has 2 values"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "azure", "holds no request"),
        ("Timestamp,Model,Request tokens\n", "burstgpt", "field `Response tokens`: has no such column"),
        ('{"timestamp": 0}\n', "mooncake", "line 1: Object missing required field `input_length`"),
        ('\n{"timestamp": 0, "input_length": "7", "output_length": 1}', "mooncake", r"line 2: Expected `int`"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, form, said):
    with pytest.raises(DatasetError, match=said):
        read(trace(tmp_path, text, form))


def test_a_window_that_holds_nothing(tmp_path):
    with pytest.raises(DatasetError, match=r"no request from 9 s on for None s\. It lasts 3 s"):
        read(trace(tmp_path, MOONCAKE, "mooncake", start_s=9))
    with pytest.raises(DatasetError, match="can't be read: No such file"):
        read(Trace(path=str(tmp_path / "none"), format="azure"))


def test_the_published_files():
    """Their counts stand in shared/data/README.md, which the project's checkouts lie beside."""
    shared = Path(__file__).parents[4] / "shared" / "data"
    if not shared.is_dir():
        pytest.skip("shared/data is not on this machine")
    azure = read(Trace(path=str(shared / "azure_llm_trace_2023/AzureLLMInferenceTrace_conv.csv"), format="azure"))
    assert len(azure) == 19_366
    assert 3_400 < azure[-1].offset_s < 3_600
    mooncake = read(Trace(path=str(shared / "mooncake_trace/conversation_trace.jsonl"), format="mooncake"))
    assert len(mooncake) == 12_031
    blocks = [block for row in mooncake for block in row.hash_ids]
    assert 1 - len(set(blocks)) / len(blocks) == pytest.approx(0.366, abs=0.001)  # seen before
