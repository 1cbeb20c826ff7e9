"""Prompts for a trace: its lengths, and where it tells the hashes of blocks, prompts that share what those share."""

from __future__ import annotations

from evaluation.schema import Trace
from evaluation.workload.datasets.made import user
from evaluation.workload.datasets.source import Draw, Made, Source
from evaluation.workload.item import Item, Turn
from evaluation.workload.text import Words
from evaluation.workload.traces import MOONCAKE_BLOCK, Row, read


class TraceSource(Source[Trace]):
    """Equal hashes give equal words of one block's length, so a prefix cache finds what it found in the recording."""

    def __init__(self, spec: Trace, draw: Draw) -> None:
        super().__init__(spec, draw)
        self.rows = read(spec)
        self._blocks: dict[int, str] = {}

    @property
    def available(self) -> int | None:
        return len(self.rows)

    @property
    def hashed(self) -> bool:
        """The recording tells which prompts were the same: equal ones are its own."""
        return any(row.hash_ids for row in self.rows)

    def offsets_s(self, indices: list[int]) -> list[float]:
        """When these came, after the first of them."""
        return [self.rows[index].offset_s - self.rows[indices[0]].offset_s for index in indices]

    async def item(self, index: int) -> Made:
        row = self.rows[index % len(self.rows)]
        if row.hash_ids:
            turn, ids = await self._hashed(index, row)
        else:
            words = Words(self.draw.rng("text", index))
            turn, ids = await self.draw.fitter.fit(row.prompt_tokens, words, lambda text: user(text, row.output_tokens))
        turn.prompt_tokens = len(ids)
        return Made(Item(turns=[turn], after_template=self.draw.tokenizer.template), [ids])

    async def _hashed(self, index: int, row: Row) -> tuple[Turn, list[int]]:
        """Whole blocks by their hashes; the rest of the last is fitted, so that the length is met."""
        whole = [await self._block(block) for block in row.hash_ids[: row.prompt_tokens // MOONCAKE_BLOCK]]
        begin = " ".join(whole)
        ids = await self.draw.tokenizer.ids(user(begin, 1)) if begin else []
        if len(ids) >= row.prompt_tokens:  # whole blocks alone; the template is over them
            return user(begin, row.output_tokens), ids
        rest = row.hash_ids[-1] if len(row.hash_ids) > len(whole) else index
        words = Words(self.draw.rng("rest", rest, len(row.hash_ids)))
        stem = f"{begin} " if begin else ""
        return await self.draw.fitter.fit(
            row.prompt_tokens, words, lambda text: user(stem + text, row.output_tokens), len(ids)
        )

    async def _block(self, block: int) -> str:
        if block not in self._blocks:
            target = MOONCAKE_BLOCK + await self.draw.template_tokens()
            words = Words(self.draw.rng("block", block))
            turn, _ = await self.draw.fitter.fit(target, words, lambda text: user(text, 1))
            self._blocks[block] = str(turn.prompt)
        return self._blocks[block]
