"""Chat templates render as transformers renders them."""

from __future__ import annotations

from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from engines.native.loader.model_files import open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.serve.errors import ApiError
from engines.native.serve.template import ChatTemplate
from tests.engines.weights import smollm2

CONVERSATION = [
    {"role": "system", "content": "You are <b>terse</b>."},
    {"role": "user", "content": "Say \"hi\" & 'bye' – ü🔥"},
    {"role": "assistant", "content": "hi"},
    {"role": "user", "content": "again\n"},
]
TRICKS = """{%- for message in messages %}
  {%- if loop.index0 == 3 %}{% break %}{% endif %}
{{ message | tojson }}{% generation %}{{ bos_token }}{% endgeneration %}
{%- endfor %}
{%- set space = namespace(found=false) %}
{%- if strftime_now("%Y") | length == 4 %}{% set space.found = true %}{% endif %}
{{ space.found }} {{ add_generation_prompt }} {{ enable_thinking | default("unset") }}
"""


def reference(source: str, messages: list[dict[str, str]], **names: object) -> str:
    rendered, _ = render_jinja_template(
        conversations=[messages], chat_template=source, add_generation_prompt=True, **names
    )
    return str(rendered[0])


def test_smollm2_template_as_transformers_renders_it() -> None:
    gguf = smollm2()
    _, facts = load_tokenizer(open_model("gguf", {gguf.name: str(gguf)}))
    for messages in (CONVERSATION, CONVERSATION[1:], CONVERSATION[1:2]):
        ours = ChatTemplate(facts.chat_template, {}).render(messages)
        assert ours == reference(facts.chat_template, messages)
        assert ours.endswith("<|im_start|>assistant\n")


def test_loop_controls_tojson_and_generation_blocks_as_transformers_has_them() -> None:
    ours = ChatTemplate(TRICKS, {"bos_token": "<s>"}).render(CONVERSATION)
    assert ours == reference(TRICKS, CONVERSATION, bos_token="<s>")
    assert "<b>terse</b>" in ours


def test_extra_names_reach_the_template() -> None:
    template = ChatTemplate(TRICKS, {})
    assert template.render(CONVERSATION).endswith("True True unset")
    assert template.render(CONVERSATION, {"enable_thinking": "off"}).endswith("True True off")
    odd = {"self": 1, "messages": [], "context": 2, "": 3}
    assert template.render(CONVERSATION, odd) == template.render(CONVERSATION)


def test_names_that_break_the_template_are_the_clients_fault() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    for source, extra in (
        ("{{ x | tojson }}", {"x": nested}),
        ("{{ 1 / x }}", {"x": 0}),
        ("{{ x.a.b }}", {}),
        ("{{ x[0] + 1 }}", {"x": ["a"]}),
    ):
        with pytest.raises(ApiError) as refused:
            ChatTemplate(source, {}).render(CONVERSATION, extra)
        assert refused.value.status == 400


def test_what_the_template_refuses_is_the_clients_fault() -> None:
    source = "{% if messages[0].role != 'user' %}{{ raise_exception('must begin with user') }}{% endif %}"
    with pytest.raises(ApiError, match="must begin with user") as refused:
        ChatTemplate(source, {}).render(CONVERSATION)
    assert (refused.value.status, refused.value.param) == (400, "messages")


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages[9].content.x }}",
    ],
)
def test_sandbox_holds_and_mistakes_do_not_crash(source: str) -> None:
    with pytest.raises(ApiError):
        ChatTemplate(source, {}).render(CONVERSATION)


def test_template_that_is_no_jinja_is_refused_at_load() -> None:
    with pytest.raises(ValueError, match="does not compile"):
        ChatTemplate("{% if %}", {})
