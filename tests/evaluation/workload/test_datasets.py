"""Every kind of data set: lengths as the server counts them, streams that share nothing, and what is wrong by name."""

import json
from pathlib import Path

import pytest

from evaluation.client.law import Law
from evaluation.client.servers import running
from evaluation.schema import (
    Endpoint,
    Jsonl,
    Length,
    Sessions,
    SharedPrefix,
    ShareGpt,
    Synthetic,
    Trace,
)
from evaluation.workload.datasets import Built, build
from evaluation.workload.dedupe import DuplicatePrompts, reuse
from evaluation.workload.errors import DatasetError
from evaluation.workload.item import Turn
from evaluation.workload.tokens import EstimatedTokens, FileTokenizer, tokenizer_for

TEMPLATE = 7


class Words:
    """A token per word, one more for each long one, and a template of seven: the worst that lengths meet."""

    verified = template = True
    source = "file"

    async def ids(self, turn: Turn) -> list[int]:
        text = " ".join(message["content"] for message in turn.messages)
        return [hash(part) for word in text.split() for part in (word[:6], word[6:]) if part] + [1] * TEMPLATE

    async def close(self) -> None:
        return


async def made(spec, count=12, *, seed=3, stream="measured", first=0, tokenizer=None, **options) -> Built:
    return await build(
        spec, count, tokenizer=tokenizer or Words(), chat=True, seed=seed, stream=stream, first=first, **options
    )


async def ids_of(built: Built) -> list[list[int]]:
    return [await Words().ids(entry.turns[0]) for entry in built.items]


async def test_lengths_are_met_after_the_template():
    spec = Synthetic(prompt=Length(distribution="uniform", low=9, high=90), output=Length(mean=5))
    built = await made(spec, 40)
    counted = [len(ids) for ids in await ids_of(built)]
    assert counted == [entry.turns[0].prompt_tokens for entry in built.items]
    assert min(counted) >= 9
    assert max(counted) <= 90
    assert len(set(counted)) > 20
    assert {entry.turns[0].max_tokens for entry in built.items} == {5}
    assert (built.verified, built.info.after_template, built.info.lengths["prompt"].n) == (True, True, 40)


async def test_a_length_is_exact_and_may_leave_the_template_out():
    exact = await made(Synthetic(prompt=Length(mean=64)))
    assert {len(ids) for ids in await ids_of(exact)} == {64}
    bare = await made(Synthetic(prompt=Length(mean=64), after_template=False))
    assert {len(ids) for ids in await ids_of(bare)} == {64 + TEMPLATE}
    assert not bare.info.after_template


async def test_a_template_longer_than_the_target_is_told_as_it_is():
    built = await made(Synthetic(prompt=Length(mean=3)), 2)
    assert {entry.turns[0].prompt_tokens for entry in built.items} <= {TEMPLATE + 1, TEMPLATE + 2}


async def test_streams_items_and_levels_share_nothing():
    spec = Synthetic(prompt=Length(mean=64))
    parts = [
        await made(spec),
        await made(spec, first=12),
        await made(spec, stream="warm_up"),
        await made(spec, seed=4),
    ]
    prompts = [ids for part in parts for ids in await ids_of(part)]
    assert reuse(prompts, 16).hit_rate == 0
    assert [part.info.expected_hit_rate for part in parts] == [0, 0, 0, 0]
    again = await made(spec)
    assert again.info.sha256 == parts[0].info.sha256 != parts[3].info.sha256


async def test_a_shared_prefix_is_shared_within_its_group():
    spec = SharedPrefix(prefix_tokens=64, groups=2, prompt=Length(mean=32), block_tokens=16)
    built = await made(spec, 10)
    assert {len(ids) for ids in await ids_of(built)} == {96}
    # 57 of the prefix's tokens are words, then comes the template's place: three whole blocks, eight times
    assert built.reuse.hit_tokens == 8 * 48
    warm = await made(spec, 10, stream="warm_up")
    assert reuse([*await ids_of(warm), *await ids_of(built)], 16).hit_tokens == 2 * 8 * 48


async def test_sessions_expect_their_history_in_the_cache():
    spec = Sessions(turns=Length(mean=3), prompt=Length(mean=20), output=Length(mean=12), think_s=2, block_tokens=16)
    built = await made(spec, 5)
    turns = built.items[0].turns
    assert [turn.think_s > 0 for turn in turns] == [False, True, True]
    assert built.items[4].session == 4
    said = 20 - TEMPLATE
    assert built.reuse.tokens == 5 * (20 + (2 * said + 12 + TEMPLATE) + (3 * said + 24 + TEMPLATE))
    assert built.reuse.hit_tokens == 5 * (16 + 48)  # whole blocks of the 31 and the 56 tokens before
    system = await made(Sessions(turns=Length(mean=1), system_tokens=40, prompt=Length(mean=20)), 3)
    assert len({entry.turns[0].messages[0]["content"] for entry in system.items}) == 1


def lines(tmp_path: Path, *rows: object, name: str = "set.jsonl") -> str:
    path = tmp_path / name
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return str(path)


async def test_jsonl(tmp_path):
    path = lines(
        tmp_path,
        {"prompt": "one two", "id": 1, "tokens": 9},
        "",
        {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]},
    )
    spec = Jsonl(path=path, output_field="tokens", output=Length(mean=4))
    built = await made(spec)
    assert [entry.turns[0].max_tokens for entry in built.items] == [9, 4]  # no more than there are
    assert built.items[1].turns[0].messages[0]["role"] == "system"
    assert built.items[0].turns[0].prompt_tokens == 2 + TEMPLATE
    repeated = await made(Jsonl(path=path, output_field="tokens", allow_duplicates=True), 5)
    assert (len(repeated.items), repeated.info.duplicates) == (5, 3)
    warm = await made(spec, 4, stream="warm_up")
    assert "one two" not in str(warm.items)
    assert {entry.turns[0].prompt_tokens for entry in warm.items} <= {9, 10}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], 'is empty. Write one request per line, as {"prompt": "…"}'),
        ([{"prompt": "a"}, {"promt": "b"}], "line 2, field `promt`: unknown field. Known: id, messages, prompt"),
        ([{"id": 4}], "line 1, field `prompt`: is missing"),
        (["{"], "line 1: no JSON"),
        (["[]"], "line 1: is no JSON object"),
        ([{"prompt": ""}], "line 1, field `prompt`: is neither a text nor"),
        ([{"messages": [{"role": "boss", "content": ""}]}], "line 1, field `messages[0]`: is no message"),
    ],
)
async def test_what_is_wrong_with_a_jsonl_is_named(tmp_path, rows, said):
    with pytest.raises(DatasetError) as caught:
        await made(Jsonl(path=lines(tmp_path, *rows)))
    assert said in str(caught.value)


async def test_a_jsonl_for_the_other_api_and_one_that_repeats(tmp_path):
    with pytest.raises(DuplicatePrompts, match="1 of 3 prompts repeat"):
        await made(Jsonl(path=lines(tmp_path, {"prompt": "a"}, {"prompt": "b"}, {"prompt": "a"})))
    messages = {"messages": [{"role": "user", "content": "x"}]}
    with pytest.raises(DatasetError, match="endpoint's api is 'completions'"):
        await build(Jsonl(path=lines(tmp_path, messages)), 1, tokenizer=EstimatedTokens(), chat=False, seed=1)
    with pytest.raises(DatasetError, match="sessions are chats, but the endpoint's api is 'completions'"):
        await build(Sessions(), 1, tokenizer=EstimatedTokens(), chat=False, seed=1)
    with pytest.raises(DatasetError, match="can't be read"):
        await made(Jsonl(path=str(tmp_path / "none")))


async def test_sharegpt(tmp_path):
    def talk(*said):
        return {"conversations": [{"from": who, "value": text} for who, text in said]}

    rows = [
        talk(("human", "what is it"), ("gpt", "a b c d")),
        talk(("gpt", "begun by the model"), ("human", "no")),
        talk(("human", "alone")),
        talk(("user", "word " * 200), ("assistant", "e")),
    ]
    path = lines(tmp_path, json.dumps(rows))
    built = await made(ShareGpt(path=path, max_prompt_tokens=50))
    found = {entry.turns[0].max_tokens: entry.turns[0].prompt_tokens for entry in built.items}
    assert found[4] == 3 + TEMPLATE
    assert 40 <= found[1] <= 50
    for bad, said in (([{"text": 1}], r"\[0\]`: has no list"), ({}, "no list of conversations"), ([], "holds no conv")):
        with pytest.raises(DatasetError, match=said):
            await made(ShareGpt(path=lines(tmp_path, json.dumps(bad))))


async def test_a_trace_shares_what_its_hashes_share(tmp_path, monkeypatch):
    for module in ("evaluation.workload.traces", "evaluation.workload.datasets.replayed"):
        monkeypatch.setattr(f"{module}.MOONCAKE_BLOCK", 32)
    rows = [
        {"timestamp": 0, "input_length": 80, "output_length": 5, "hash_ids": [1, 2, 3]},
        {"timestamp": 10, "input_length": 90, "output_length": 6, "hash_ids": [1, 2, 4]},
        {"timestamp": 20, "input_length": 64, "output_length": 7, "hash_ids": [5, 6]},
    ]
    spec = Trace(path=lines(tmp_path, *rows), format="mooncake", block_tokens=32)
    built = await made(spec)
    ids = await ids_of(built)
    assert [len(entry) for entry in ids[:2]] == [80, 90]
    assert len(ids[2]) == 64 + TEMPLATE  # whole blocks alone, the template over them
    assert built.offsets_s == [0, 0.01, 0.02]
    assert built.reuse.hit_tokens == 64
    assert [entry.turns[0].max_tokens for entry in built.items] == [5, 6, 7]


async def test_the_endpoints_own_tokenizer_counts():
    """And the tokens that a template adds are in the count, as the server's usage has them (gpustack #4560)."""
    async with running(Law(template_tokens=83)) as url:
        endpoint = Endpoint(url=url, model="law")
        tokenizer = await tokenizer_for(endpoint)
        built = await build(Synthetic(prompt=Length(mean=110)), 8, tokenizer=tokenizer, chat=True, seed=1)
        await tokenizer.close()
    assert (built.token_source, built.verified) == ("endpoint", True)
    assert {len(entry.turns[0].messages[0]["content"].split()) for entry in built.items} == {110 - 83}


async def test_without_a_tokenizer_lengths_are_declared_unverified():
    tokenizer = await tokenizer_for(Endpoint(url="http://127.0.0.1:9", model="x"))
    built = await build(Synthetic(prompt=Length(mean=50)), 4, tokenizer=tokenizer, chat=True, seed=1)
    assert (built.token_source, built.verified, built.info.after_template) == ("estimate", False, False)
    assert all(abs(len(entry.turns[0].messages[0]["content"]) / 4 - 50) < 1.5 for entry in built.items)


async def test_a_tokenizer_file_and_its_template(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    loaded = Tokenizer(models.WordLevel({"[UNK]": 0, "<user>": 1}, "[UNK]"))
    loaded.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    loaded.save(str(tmp_path / "tokenizer.json"))
    turn = Turn(messages=[{"role": "user", "content": "a b c"}], prompt="a b")
    bare = FileTokenizer(tmp_path, chat=True)
    assert (len(await bare.ids(turn)), bare.template) == (3, False)
    assert len(await FileTokenizer(tmp_path / "tokenizer.json", chat=False).ids(turn)) == 2
    settings = {"chat_template": "{% for m in messages %}<{{ m.role }}> {{ m.content }} {{ eos_token }}{% endfor %}",
                "eos_token": {"content": "<end>"}}  # fmt: skip
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    templated = FileTokenizer(tmp_path, chat=True)
    assert (len(await templated.ids(turn)), templated.template) == (5, True)
    with pytest.raises(DatasetError, match=r"field `endpoint.tokenizer`: no tokenizer can be read"):
        FileTokenizer(tmp_path / "none", chat=True)
