"""Prompts out of files: JSON lines, and conversations as ShareGPT has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from evaluation.schema import Jsonl, ShareGpt
from evaluation.workload import lengths
from evaluation.workload.datasets.source import Draw, Made, Source
from evaluation.workload.errors import DatasetError
from evaluation.workload.item import Item, Turn

ROLES = ("system", "developer", "user", "assistant", "tool")
HUMAN = ("human", "user")


def read_file(path: str) -> tuple[str, bytes]:
    """Raises DatasetError."""
    file = Path(path).expanduser()
    try:
        return str(file), file.read_bytes()
    except OSError as error:
        raise DatasetError(str(file), f"can't be read: {error.strerror}", "Name a file of this machine") from error


class JsonlSource(Source[Jsonl]):
    """Each line one request: a prompt, or OpenAI's messages; nothing else but an id and the tokens to generate."""

    def __init__(self, spec: Jsonl, draw: Draw) -> None:
        super().__init__(spec, draw)
        self._path, data = read_file(spec.path)
        self._turns = [
            self._turn(number, line) for number, line in enumerate(data.splitlines(), 1) if line and not line.isspace()
        ]
        if not self._turns:
            raise DatasetError(self._path, "is empty", 'Write one request per line, as {"prompt": "…"}')

    @property
    def available(self) -> int | None:
        return len(self._turns)

    def _turn(self, number: int, line: bytes) -> Turn:
        spec = self.spec
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DatasetError(self._path, f"no JSON: {error}", line=number) from error
        if not isinstance(row, dict):
            raise DatasetError(self._path, "is no JSON object", 'Write {"prompt": "…"}', line=number)
        known = {spec.prompt_field, "messages", "id"} | ({spec.output_field} if spec.output_field else set())
        for name in row:
            if name not in known:
                fix = f"Known: {', '.join(sorted(known))}; dataset.prompt_field and output_field name others"
                raise DatasetError(self._path, "unknown field", fix, line=number, field=str(name))
        field = spec.prompt_field if spec.prompt_field in row else "messages"
        said = row.get(field)
        if said is None:
            raise DatasetError(self._path, "is missing", "Each line needs a prompt", line=number,
                               field=spec.prompt_field)  # fmt: skip
        asked = row.get(spec.output_field) if spec.output_field else None
        if asked is not None and (not isinstance(asked, int) or isinstance(asked, bool) or asked < 1):
            raise DatasetError(self._path, f"no number of tokens: {asked!r}", line=number, field=spec.output_field)
        return self._of(said, asked, number, field)

    def _of(self, said: Any, asked: int | None, line: int, field: str) -> Turn:
        if isinstance(said, str) and said:
            return Turn(messages=[{"role": "user", "content": said}], prompt=said, max_tokens=asked)
        if isinstance(said, list) and said:
            for place, message in enumerate(said):
                if not isinstance(message, dict) or message.get("role") not in ROLES or "content" not in message:
                    raise DatasetError(self._path, "is no message with `role` and `content`",
                                       f"Roles: {', '.join(ROLES)}", line=line, field=f"{field}[{place}]")  # fmt: skip
            if not self.draw.chat:
                raise DatasetError(self._path, "holds messages, but the endpoint's api is 'completions'",
                                   "Set endpoint.api to 'chat', or give prompts", line=line, field=field)  # fmt: skip
            return Turn(messages=said, max_tokens=asked)
        raise DatasetError(self._path, "is neither a text nor a list of messages, or is empty", line=line, field=field)

    async def item(self, index: int) -> Made:
        turn = self._turns[index % len(self._turns)]
        output = turn.max_tokens or lengths.draw(self.spec.output, self.draw.rng("length", index))
        ids = await self.draw.tokenizer.ids(turn)
        made = Turn(messages=turn.messages, prompt=turn.prompt, max_tokens=output, prompt_tokens=len(ids))
        return Made(Item(turns=[made], after_template=self.draw.tokenizer.template), [ids])


class ShareGptSource(Source[ShareGpt]):
    """First question of each conversation, and how long its answer was: as vLLM and SGLang use these files."""

    def __init__(self, spec: ShareGpt, draw: Draw) -> None:
        super().__init__(spec, draw)
        self._path, data = read_file(spec.path)
        try:
            rows = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DatasetError(self._path, f"no JSON: {error}", "The whole file is one list") from error
        if not isinstance(rows, list):
            raise DatasetError(self._path, "is no list of conversations")
        self._pairs = [pair for number, row in enumerate(rows) if (pair := self._pair(number, row)) is not None]
        if not self._pairs:
            raise DatasetError(self._path, "holds no conversation of a question and an answer")
        order = draw.rng("order").permutation(len(self._pairs))
        self._pairs = [self._pairs[place] for place in order]

    @property
    def available(self) -> int | None:
        return len(self._pairs)

    def _pair(self, number: int, row: Any) -> tuple[str, str] | None:
        said = row.get("conversations", row.get("conversation")) if isinstance(row, dict) else None
        if not isinstance(said, list):
            raise DatasetError(self._path, "has no list `conversations`", field=f"[{number}]")
        texts: list[tuple[str, str]] = []
        for place, one in enumerate(said[:2]):
            who = one.get("from", one.get("role")) if isinstance(one, dict) else None
            text = one.get("value", one.get("content")) if isinstance(one, dict) else None
            if not isinstance(who, str) or not isinstance(text, str):
                raise DatasetError(self._path, "has no `from` and `value`", field=f"[{number}].conversations[{place}]")
            texts.append((who, text))
        if len(texts) < 2 or texts[0][0] not in HUMAN or not texts[0][1].strip() or not texts[1][1].strip():
            return None  # begun by the model, or never answered
        return texts[0][1], texts[1][1]

    async def item(self, index: int) -> Made:
        """A question that is too long is cut to `max_prompt_tokens` in bytes of the same share."""
        spec, draw = self.spec, self.draw
        question, answer = self._pairs[index % len(self._pairs)]
        turn = Turn(messages=[{"role": "user", "content": question}], prompt=question)
        ids = await draw.tokenizer.ids(turn)
        while len(ids) > spec.max_prompt_tokens and len(question) > 1:
            question = question[: max(1, len(question) * spec.max_prompt_tokens // len(ids) - 1)]
            turn = Turn(messages=[{"role": "user", "content": question}], prompt=question)
            ids = await draw.tokenizer.ids(turn)
        if spec.output is not None:
            turn.max_tokens = lengths.draw(spec.output, draw.rng("length", index))
        else:
            told = Turn(messages=[{"role": "user", "content": answer}], prompt=answer)
            turn.max_tokens = max(1, len(await draw.tokenizer.ids(told)) - await draw.template_tokens())
        turn.prompt_tokens = len(ids)
        return Made(Item(turns=[turn], after_template=draw.tokenizer.template), [ids])
