"""The model as its clients know it: a name, a tokenizer, a chat template. Loaded once, never changed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from tokenizers import Tokenizer

from engines.native.loader.model_files import ModelFiles
from engines.native.loader.tokenizer import TokenizerFacts, load_tokenizer
from engines.native.serve.detokenize import Detokenizer
from engines.native.serve.errors import ApiError
from engines.native.serve.generate import ThinkTokens
from engines.native.serve.template import ChatTemplate

_LONG_TEXT = 8192
"""Characters from which tokenizing goes to a thread, so that other streams go on (the library drops the GIL)."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    name: str
    created: int  # unix time
    vocab_size: int  # ids that the model can take and give
    tokenizer: Tokenizer
    facts: TokenizerFacts
    detokenizer: Detokenizer
    template: ChatTemplate | None
    think: ThinkTokens | None

    async def encode(self, text: str, *, add_bos: bool) -> list[int]:
        """Ids of a text; special tokens in it are recognised. `add_bos`: begin as the model wants a plain prompt."""
        if len(text) < _LONG_TEXT:
            ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        else:
            encoding = await asyncio.to_thread(self.tokenizer.encode, text, add_special_tokens=False)
            ids = encoding.ids
        bos = self.facts.bos_id
        if add_bos and self.facts.add_bos and bos is not None and ids[:1] != [bos]:
            return [bos, *ids]
        return ids

    def require_name(self, asked: object) -> None:
        """Raises ApiError 404 for another model, with the name of this one."""
        if not isinstance(asked, str):
            raise ApiError(400, "model must be a string", param="model", code="invalid_type")
        if asked != self.name:
            message = f"the model {asked[:100]!r} does not exist; available: {self.name}"
            raise ApiError(404, message, param="model", code="model_not_found")


def load(name: str, files: ModelFiles) -> ServedModel:
    """Raises BadModel for a tokenizer that is missing or unknown, ValueError for a template that is no Jinja."""
    tokenizer, facts = load_tokenizer(files)
    vocab_size = files.config.vocab
    special = {}
    if facts.bos_id is not None:
        special["bos_token"] = tokenizer.id_to_token(facts.bos_id) or ""
    if facts.eos_ids:
        special["eos_token"] = tokenizer.id_to_token(facts.eos_ids[0]) or ""
    begin, end = tokenizer.token_to_id("<think>"), tokenizer.token_to_id("</think>")
    return ServedModel(
        name=name,
        created=int(time.time()),
        vocab_size=vocab_size,
        tokenizer=tokenizer,
        facts=facts,
        detokenizer=Detokenizer(tokenizer, vocab_size),
        template=ChatTemplate(facts.chat_template, special) if facts.chat_template else None,
        think=ThinkTokens(begin, end) if begin is not None and end is not None else None,
    )
