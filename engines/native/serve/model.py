"""The model as its clients know it: a name, a tokenizer, a chat template. Loaded once, never changed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace

from tokenizers import Tokenizer

from engines.native.grammar.compiler import Compiler
from engines.native.grammar.vocabulary import checking
from engines.native.loader.generation import sampling_defaults
from engines.native.loader.model_files import ModelFiles
from engines.native.loader.tokenizer import TokenizerFacts, load_tokenizer
from engines.native.pooling.config import Task
from engines.native.pooling.files import PoolingFiles
from engines.native.serve.detokenize import Detokenizer
from engines.native.serve.errors import ApiError
from engines.native.serve.parsers import registry
from engines.native.serve.parsers.reasoning import ReasoningTags
from engines.native.serve.pooling import PoolingText, pooling_text
from engines.native.serve.template import ChatTemplate

_LONG_TEXT = 8192
"""Characters from which tokenizing goes to a thread, so that other streams go on (the library drops the GIL)."""


@dataclass(frozen=True, slots=True)
class ThinkTokens:
    """Ids of the tags around the reasoning, where each is one token."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class ServedModel:
    """defaults: how its makers want it sampled, by field of a request. reasoning: tags of what is kept apart from the
    answer. tool_parser: a name in `parsers.registry`. tagged: a detokenizer that shows their tags, which may be special
    tokens. None or the plain one where there is nothing."""

    name: str
    created: int  # unix time
    vocab_size: int  # ids that the model can take and give
    grammars: Compiler  # tells whether a grammar can be compiled
    tokenizer: Tokenizer
    facts: TokenizerFacts
    detokenizer: Detokenizer
    defaults: dict[str, float]
    template: ChatTemplate | None
    think: ThinkTokens | None
    reasoning: ReasoningTags | None
    tool_parser: str | None
    tagged: Detokenizer
    pooling: PoolingText | None  # of a model that gives numbers and no text

    @property
    def task(self) -> Task:
        return Task.GENERATE if self.pooling is None else self.pooling.head.task

    def token_ids(self, text: str) -> list[int]:
        """Ids of a short text, special tokens in it recognised; none for one with a token that the model lacks."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids if all(token < self.vocab_size for token in ids) else []

    async def encode(self, text: str, *, add_bos: bool) -> list[int]:
        """Ids of a text; special tokens in it are recognised. `add_bos`: begin as the model wants a plain prompt."""
        if len(text) < _LONG_TEXT:
            ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        else:
            encoding = await asyncio.to_thread(self.tokenizer.encode, text, add_special_tokens=False)
            ids = encoding.ids
        if add_bos and self.pooling is not None:
            return self.pooling.whole(text)
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


def load(
    name: str, files: ModelFiles | PoolingFiles, *, tool_parser: str = "auto", reasoning_parser: str = "auto"
) -> ServedModel:
    """Raises BadModel for a tokenizer that is missing or unknown, ValueError for a template that is no Jinja."""
    tokenizer, facts = load_tokenizer(files)
    vocab_size = files.config.vocab
    facts = replace(facts, eos_ids=tuple(token for token in facts.eos_ids if 0 <= token < vocab_size))
    special = {}
    if facts.bos_id is not None:
        special["bos_token"] = tokenizer.id_to_token(facts.bos_id) or ""
    if facts.eos_ids:
        special["eos_token"] = tokenizer.id_to_token(facts.eos_ids[0]) or ""
    reasoning = registry.reasoning_tags(reasoning_parser, facts.chat_template, tokenizer.token_to_id)
    parser = registry.tool_parser(tool_parser, facts.chat_template, tokenizer.token_to_id)
    detokenizer = Detokenizer(tokenizer, vocab_size)
    tags = registry.tags_of(parser, reasoning)
    shown = [token for tag in tags if (token := tokenizer.token_to_id(tag)) is not None and token < vocab_size]
    return ServedModel(
        name=name,
        created=int(time.time()),
        vocab_size=vocab_size,
        grammars=Compiler(lambda: checking(tokenizer, vocab_size, facts.special_ids, facts.eos_ids)),
        tokenizer=tokenizer,
        facts=facts,
        detokenizer=detokenizer,
        defaults=sampling_defaults(files),
        template=ChatTemplate(facts.chat_template, special) if facts.chat_template else None,
        think=_think_tokens(tokenizer, reasoning),
        reasoning=reasoning,
        tool_parser=parser,
        tagged=detokenizer.showing(shown) if shown else detokenizer,
        pooling=pooling_text(files, tokenizer) if isinstance(files, PoolingFiles) else None,
    )


def _think_tokens(tokenizer: Tokenizer, tags: ReasoningTags | None) -> ThinkTokens | None:
    begin = tokenizer.token_to_id(tags.begin) if tags else None
    end = tokenizer.token_to_id(tags.end) if tags else None
    return ThinkTokens(begin, end) if begin is not None and end is not None else None
