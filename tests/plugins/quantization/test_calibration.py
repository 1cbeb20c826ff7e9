"""Calibration rows: which texts are taken, what they look like to the model, what is refused and with which numbers."""

import json

import pytest

from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.protocol import ChildError
from plugins.quantization import calibration
from tests.tiny_models import write_safetensors

START, END = 257, 258
CHATML = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
OPENS_ONCE = "<|start|>{% for message in messages %}{{ message['content'] }}<|im_end|>{% endfor %}"


def tokenizer_of(folder, *, bos=False, template=None):
    write_safetensors(folder, bos=bos)
    if template is not None:
        about = folder / "tokenizer_config.json"
        about.write_text(json.dumps({**json.loads(about.read_text()), "chat_template": template}))
    return load_tokenizer(open_model("safetensors", {path.name: str(path) for path in folder.iterdir()}))


def rows_of(path, tokenizer, facts, samples=32, tokens=32, seed=0):
    return calibration.load(path, tokenizer, facts, samples=samples, tokens=tokens, seed=seed)


def jsonl(path, rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def texts(count, words="a text of some length, number"):
    return [{"text": f"{words} {number}"} for number in range(count)]


@pytest.fixture
def tokenizer(tmp_path):
    return tokenizer_of(tmp_path / "model")


def test_rows_are_whole_and_follow_the_seed(tokenizer, tmp_path):
    path = jsonl(tmp_path / "c.jsonl", texts(80))
    made = rows_of(path, *tokenizer)
    assert made.rows.shape == (32, 32)
    assert made.facts.texts == 80
    assert 0 < made.facts.used <= 80
    again, other = rows_of(path, *tokenizer), rows_of(path, *tokenizer, seed=1)
    assert (again.rows == made.rows).all()
    assert again.facts.rows_sha256 == made.facts.rows_sha256 != other.facts.rows_sha256
    assert made.facts.bos == "none"
    assert START not in made.rows


def test_each_row_knows_the_texts_that_it_is_of(tokenizer, tmp_path):
    path = jsonl(tmp_path / "c.jsonl", [*texts(60), {"text": "one long text. " * 40}, {"text": "short"}])
    made = rows_of(path, *tokenizer)
    first, last = made.texts.T
    assert made.texts.shape == (32, 2)
    assert first[0] == 1
    assert last[-1] == made.facts.used
    assert (first <= last).all()
    assert ((first[1:] == last[:-1]) | (first[1:] == last[:-1] + 1)).all(), "rows follow each other"
    assert 0 < (first == last).sum() < 32
    for row, begun, ended in zip(made.rows, first, last, strict=True):
        text = tokenizer[0].decode(row.tolist()).rstrip("\n").lstrip("\n")
        assert text.count("\n\n") == ended - begun or row[0] == row[1]  # two line feeds end a text, or begin a row


def test_chats_go_through_the_template_without_the_turn_that_would_be_answered(tmp_path):
    tokenizer, facts = tokenizer_of(tmp_path / "model", template=CHATML)
    chat = [{"messages": [{"role": "user", "content": f"question {n}"}, {"role": "assistant", "content": "yes"}]}
            for n in range(60)]  # fmt: skip
    made = rows_of(jsonl(tmp_path / "c.jsonl", chat), tokenizer, facts)
    text = tokenizer.decode(made.rows.flatten().tolist(), skip_special_tokens=False)
    assert made.facts.chat_template
    turns = text.split("<|start|>")[1:-1]
    assert len(turns) > 20
    assert all(turn.startswith(("user\nquestion ", "assistant\nyes<|im_end|>")) for turn in turns)
    assert made.facts.bos == "none", "a token that opens every turn is no BOS"


def test_prompt_with_completion_is_a_chat(tmp_path):
    tokenizer, facts = tokenizer_of(tmp_path / "model", template=CHATML)
    rows = [{"prompt": f"question {n}", "completion": "an answer"} for n in range(60)]
    made = rows_of(jsonl(tmp_path / "c.jsonl", rows), tokenizer, facts)
    assert "assistant\nan answer<|im_end|>" in tokenizer.decode(made.rows[0].tolist() + made.rows[1].tolist(),
                                                               skip_special_tokens=False)  # fmt: skip


@pytest.mark.parametrize(("bos", "template"), [(True, OPENS_ONCE), (False, OPENS_ONCE), (True, None)])
def test_bos_stands_once_in_a_row_whoever_writes_it(tmp_path, bos, template):
    """EleutherAI/lm-evaluation-harness 2676: 0.26 without a BOS, 0.85 with it; two are no better."""
    tokenizer, facts = tokenizer_of(tmp_path / "model", bos=bos, template=template)
    chat = [{"messages": [{"role": "user", "content": f"a question of some length {n}"}]} for n in range(60)]
    made = rows_of(jsonl(tmp_path / "c.jsonl", [*chat, *texts(30)]), tokenizer, facts)
    assert (made.rows[:, 0] == START).all()
    assert (made.rows == START).sum() == len(made.rows)
    assert made.facts.bos == "once, at the start of a row"


def test_short_rows_and_doubles_are_left_out_and_counted(tokenizer, tmp_path):
    path = jsonl(tmp_path / "c.jsonl", [*texts(70), *texts(70), *[{"text": f"{n}"} for n in range(9)]])
    made = rows_of(path, *tokenizer, samples=64)
    assert made.facts.texts == 149
    assert made.facts.duplicates > 30
    assert made.facts.short > 5


def test_a_giant_text_is_cut_before_it_is_tokenized(tokenizer, tmp_path, monkeypatch):
    seen = []

    class Counting:
        def __getattr__(self, name):
            return getattr(tokenizer[0], name)

        def encode(self, text, **options):
            seen.append(len(text))
            return tokenizer[0].encode(text, **options)

    path = jsonl(tmp_path / "c.jsonl", [{"text": "all in one line " * 10_000}, *texts(80)])
    rows_of(path, Counting(), tokenizer[1], samples=60, tokens=32)
    assert max(seen) == calibration.CHARACTERS * calibration.LONGEST * 32


def test_a_line_that_is_nested_too_deep_is_broken(tokenizer, tmp_path):
    deep = '{"text": ' + "[" * 200_000 + "]" * 200_000 + "}"
    made = rows_of(jsonl(tmp_path / "c.jsonl", [*texts(80), deep]), *tokenizer)
    assert made.facts.broken == 1
    assert "line 81 is nested too deep" in made.facts.notes[0]


def test_plain_text_has_a_text_per_paragraph(tokenizer, tmp_path):
    path = tmp_path / "c.txt"
    path.write_text("\n\n".join(f"Paragraph {n} has\ntwo lines of text." for n in range(70)))
    made = rows_of(path, *tokenizer)
    assert made.facts.texts == 70


def test_too_little_is_refused_with_numbers(tokenizer, tmp_path):
    path = jsonl(tmp_path / "c.jsonl", [*texts(10), *texts(2), {"text": "tiny"}])
    with pytest.raises(ChildError) as caught:
        rows_of(path, *tokenizer, samples=128, tokens=64)
    assert caught.value.code == "bad_calibration"
    assert caught.value.message.startswith("calibration: 13 texts (2 double, 1 under 10 tokens), 10 usable with 3")
    assert "rows of 64; 128 were asked for" in caught.value.message
    assert "8,192 tokens" in caught.value.hint


def test_somewhat_less_than_asked_is_used_and_said(tokenizer, tmp_path):
    made = rows_of(jsonl(tmp_path / "c.jsonl", texts(40)), *tokenizer, samples=60)
    assert 30 <= made.facts.samples < 60
    assert made.facts.notes == [f"{made.facts.samples} rows instead of 60: the data has no more"]


def test_a_few_broken_lines_are_counted_and_many_refuse_the_file(tokenizer, tmp_path):
    good = texts(100)
    made = rows_of(jsonl(tmp_path / "a.jsonl", [*good[:50], '{"text": "cut', *good[50:]]), *tokenizer)
    assert made.facts.broken == 1
    assert "line 51 is no JSON" in made.facts.notes[0]
    with pytest.raises(ChildError) as caught:
        rows_of(jsonl(tmp_path / "b.jsonl", [*good, *[{"question": "?"}] * 20]), *tokenizer)
    assert caught.value.message == (
        "calibration: 20 of 120 lines are broken; the first: line 101 has none of messages, text, prompt with "
        "completion (it has question)"
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file holds no text"),
        (b"  \n \n", "the file holds no text"),
        (b'[{"text": "a list"}]', "the file is one JSON list, not JSONL"),
        (b"fine\nfine\n\xff\xfe", "line 3 is no UTF-8 text"),
        (b'{"messages": []}\n', "line 1 has messages that are no list"),
        (b'{"messages": [{"content": "x"}]}\n', "line 1 has a message without a role"),
        (b'{"messages": [{"role": "user", "content": 5}]}\n', "line 1 has a message whose content is no text"),
        (b'{"messages": [{"role": "user", "content": ""}]}\n', "line 1 has a message without content"),
        (b'{"prompt": "only"}\n', "line 1 has none of messages, text"),
    ],
)
def test_files_of_another_kind(tokenizer, tmp_path, data, message):
    path = tmp_path / "c.jsonl"
    path.write_bytes(data)
    with pytest.raises(ChildError) as caught:
        rows_of(path, *tokenizer)
    assert caught.value.code == "bad_calibration"
    assert message in caught.value.message


def test_a_template_that_refuses_every_chat_is_named(tmp_path):
    tokenizer, facts = tokenizer_of(tmp_path / "model", template="{{ raise_exception('system first') }}")
    chat = [{"messages": [{"role": "user", "content": f"a question of some length {n}"}]} for n in range(60)]
    with pytest.raises(ChildError, match="60 texts \\(60 broken\\), 0 usable"):
        rows_of(jsonl(tmp_path / "c.jsonl", chat), tokenizer, facts)


def test_what_ships_with_us_is_enough_for_the_default(tokenizer):
    """Byte tokens here; a vocabulary of words makes a quarter of them, which is still enough (docs/quantization.md)."""
    made = rows_of(None, *tokenizer, samples=256, tokens=512)
    assert made.facts.source == "built-in"
    assert made.facts.samples == 256
    assert made.facts.broken == made.facts.duplicates == 0
