"""A message that is continued ends the prompt exactly where it ends itself."""

import pytest

from engines.native.serve.errors import ApiError
from engines.native.serve.template import ChatTemplate

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize("last", ["<", "end", "<|im_end|>", "im_", "user", "Sure, ", " and", ""])
def test_the_prompt_ends_where_the_message_does(last):
    messages = [{"role": "user", "content": "user"}, {"role": "assistant", "content": last}]
    prompt = ChatTemplate(CHATML, {}).render(messages, {"add_generation_prompt": False}, goes_on=True)
    assert prompt == f"<|im_start|>user\nuser<|im_end|>\n<|im_start|>assistant\n{last}"


def test_a_template_that_leaves_the_message_out_is_told():
    with pytest.raises(ApiError, match="can't be continued"):
        ChatTemplate("{{ messages[0].content }}", {}).render(
            [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], goes_on=True
        )
