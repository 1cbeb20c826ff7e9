"""A runner without a model, for properties of the scheduler. Its KV cache is real in the way that matters: what a
slot holds depends on all tokens before it, and the next token depends on what is read back through the block table.
So a block that is read before it was written, shared wrongly, or overwritten too early changes the output."""

from __future__ import annotations

import numpy as np

from engines.native.request import SamplingParams
from engines.native.step import StepOutput, StepPlan, TokenMasks, Verified

VOCAB = 50
_SEED = 0x9E3779B9


def _mix(state: int, token: int) -> int:
    return ((state ^ (token + 1)) * 0x2545F4914F6CDD1D + 0x632BE59BD9B4E019) % (1 << 61)


def _draw(state: int) -> int:
    return (state >> 20) % VOCAB


def expected(prompt: list[int], params: SamplingParams, max_len: int) -> list[int]:
    """The output of a request that runs alone and is never disturbed."""
    state = _SEED
    for token in prompt:
        state = _mix(state, token)
    output: list[int] = []
    while True:
        token = _draw(state)
        output.append(token)
        if token in params.stop_token_ids and len(output) >= params.min_tokens:
            return output
        if len(output) == params.max_tokens or len(prompt) + len(output) == max_len:
            return output
        state = _mix(state, token)


def continuation(tokens: list[int], count: int) -> list[int]:
    """What the model says after `tokens`, greedily."""
    state, said = _SEED, []
    for token in tokens:
        state = _mix(state, token)
    for _ in range(count):
        said.append(_draw(state))
        state = _mix(state, said[-1])
    return said


class _Drawing:
    """written: output tokens of each row that samples. A mask, which is a CountingMatcher's, must be of that token."""

    output: StepOutput

    def __init__(self, written: list[int]) -> None:
        self._written, self._drawn = written, False

    def draw(self, masks: TokenMasks | None) -> None:
        assert not self._drawn, "drawn twice"
        self._drawn = True
        if masks is not None:
            for place, (seen,) in zip(masks.places.tolist(), masks.bits.tolist(), strict=True):
                assert seen == self._written[place], "a mask for another token"

    def wait(self) -> StepOutput:
        assert self._drawn, "its masks never came"
        return self.output


class FakeRunner:
    """`depth` 2: as on a GPU, a launched pass is computed, but its tokens are seen only when waited for."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        max_model_len: int = 64,
        max_num_seqs: int = 8,
        depth: int = 1,
        host_blocks: int = 0,
    ):
        self.depth = depth
        self.num_blocks, self.block_size = num_blocks, block_size
        self.max_model_len, self.vocab_size = max_model_len, VOCAB
        self.cache = np.full((num_blocks, block_size), -1, np.int64)
        self.host_blocks = host_blocks
        self.host = np.full((host_blocks + 1, block_size), -2, np.int64)
        self.swapped_out = self.swapped_in = 0  # blocks
        self.tokens: list[list[int]] = [[] for _ in range(max_num_seqs)]
        self.tables: list[list[int]] = [[] for _ in range(max_num_seqs)]
        self.prompt_lens = [0] * max_num_seqs
        self.steps = 0
        self.computed_tokens = 0

    def add(self, row: int, token_ids: list[int], params: SamplingParams, prompt_len: int) -> None:
        assert 0 < prompt_len <= len(token_ids)
        self.tokens[row], self.tables[row], self.prompt_lens[row] = list(token_ids), [], prompt_len

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        for source, destination in pairs:
            self.cache[destination] = self.cache[source]

    def swap_out(self, pairs: list[tuple[int, int]]) -> None:
        assert len({host for _, host in pairs}) == len(pairs), "two blocks into one host block"
        for block, host in pairs:
            assert block != 0
            assert host != 0
            self.host[host] = self.cache[block]
        self.swapped_out += len(pairs)

    def swap_in(self, pairs: list[tuple[int, int]]) -> None:
        for host, block in pairs:
            assert block != 0
            assert host != 0
            self.cache[block] = self.host[host]
        self.swapped_in += len(pairs)

    def synchronize(self) -> None:
        """A launched pass is over."""

    def host_view(self, host: int) -> memoryview:
        return memoryview(self.host[host].view(np.uint8))

    def launch(self, plan: StepPlan) -> _Drawing:
        self.steps += 1
        self.computed_tokens += plan.tokens
        assert len(set(plan.rows.tolist())) == len(plan.rows)
        for row, index, blocks in plan.new_blocks:
            assert index == len(self.tables[row])
            self.tables[row].extend(blocks)
        done = _Drawing([written for place in range(len(plan.rows)) for written in self._written(plan, place)])
        if not plan.late:
            done.draw(plan.masks)
        before = self.cache.copy()  # what other rows write in this very pass can't be read
        written: set[tuple[int, int]] = set()
        drawn = np.full(len(plan.rows), -1, np.int32)
        said: list[list[int]] = [[] for _ in plan.rows]
        work = zip(plan.rows.tolist(), plan.start.tolist(), plan.count.tolist(), strict=True)
        for i, (row, start, count) in enumerate(work):
            state = self._read(before, row, start)
            if plan.drafts is not None and i < len(plan.drafts.nodes):
                self._verify(plan, i, state, said)
                continue
            for position in range(start, start + count):
                state = _mix(state, self.tokens[row][position])
                slot = (self.tables[row][position // self.block_size], position % self.block_size)
                assert slot[0] != 0
                assert slot not in written, "two rows write one slot"
                written.add(slot)
                self.cache[slot] = state
            assert plan.sample[i] == (start + count == len(self.tokens[row]))
            if plan.sample[i]:
                drawn[i] = _draw(state)
                self.tokens[row].append(int(drawn[i]))
        done.output = StepOutput(drawn, np.full(len(plan.rows), np.nan, np.float32))
        if plan.drafts is not None:
            width = plan.drafts.width + 1
            each = [own or ([int(drawn[i])] if plan.sample[i] else []) for i, own in enumerate(said)]
            tokens = np.array([own + [-1] * (width - len(own)) for own in each], np.int32)
            done.output.verified = Verified(tokens, np.array([len(own) for own in each], np.int32))
            done.output.logprobs = np.full(len(plan.rows) * width, np.nan, np.float32)
        return done

    def _written(self, plan: StepPlan, place: int) -> list[int]:
        """Output tokens before each that the row draws in this pass."""
        if not plan.sample[place]:
            return []
        row = int(plan.rows[place])
        depths = [len(self.tokens[row]) - self.prompt_lens[row]]
        if plan.drafts is not None and place < len(plan.drafts.nodes):
            for parent in plan.drafts.parents[place, : plan.drafts.nodes[place]].tolist():
                depths.append(depths[parent] + 1)
        return depths

    def _verify(self, plan: StepPlan, place: int, state: int, said: list[list[int]]) -> None:
        """As the model does: every node is computed and written behind the row's last token, a token is drawn behind
        each, and the path that holds is moved to the front."""
        drafts = plan.drafts
        assert drafts is not None
        row, start, nodes = int(plan.rows[place]), int(plan.start[place]), int(drafts.nodes[place])
        assert plan.count[place] == 1 + nodes
        assert start + 1 == len(self.tokens[row]), "drafts follow a row's last token"
        states = [_mix(state, self.tokens[row][start])]
        for token, parent in zip(drafts.tokens[place, :nodes], drafts.parents[place, :nodes], strict=True):
            assert parent < len(states), "a node before its parent"
            states.append(_mix(states[parent], int(token)))
        slots = [
            (self.tables[row][at // self.block_size], at % self.block_size) for at in range(start, start + nodes + 1)
        ]
        for slot, value in zip(slots, states, strict=True):
            assert slot[0] != 0
            self.cache[slot] = value
        at, path = 0, [0]
        said[place].append(_draw(states[0]))
        while True:
            below = [
                node + 1
                for node in range(nodes)
                if drafts.parents[place, node] == at and drafts.tokens[place, node] == said[place][-1]
            ]
            if not below:
                break
            at = below[0]
            path.append(at)
            said[place].append(_draw(states[at]))
        for index, node in enumerate(path):
            self.cache[slots[index]] = states[node]
        self.tokens[row].extend(said[place])

    def _read(self, cache: np.ndarray, row: int, start: int) -> int:
        """The state after `start` tokens. Every slot before must hold what those tokens alone would have left."""
        state = _SEED
        for position in range(start):
            state = _mix(state, self.tokens[row][position])
            held = cache[self.tables[row][position // self.block_size], position % self.block_size]
            if held != state:
                return int(held) & ((1 << 61) - 1)  # wrong content gives a wrong output, as in a real cache
        return state
