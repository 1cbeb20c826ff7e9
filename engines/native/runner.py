"""The model side of the core: one StepPlan in, one StepOutput out.

launch(): new blocks → inputs from the row tables → layers → logits of the rows that sample → tokens into the rows.
On a GPU a pure decode is one captured graph (`decode_graph`), and nothing here waits for the device.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np
import torch

from engines.native import heap, memory, strict
from engines.native.config import EngineConfig
from engines.native.host_blocks import HostBlocks
from engines.native.kv_cache import make_pools, scales_for
from engines.native.loader.model_files import ModelFiles, open_model
from engines.native.models.build import load_weights
from engines.native.models.config import DecoderConfig
from engines.native.models.decoder import Decoder
from engines.native.models.features import Feature
from engines.native.ops.base import Batch
from engines.native.ops.registry import DEFAULTS, KV_8, STRICT, make_ops
from engines.native.ops.spans import spans_of
from engines.native.quantized_kv import planes
from engines.native.request import SamplingParams
from engines.native.sample import logprobs
from engines.native.sizes import Sizes, device_of, sizes_of
from engines.native.speculation import drawing, verify
from engines.native.state import Arriving, Rows, StepInputs
from engines.native.step import Finished, Pending, StepOutput, StepPlan, TokenMasks
from engines.native.swap_costs import NEVER, SwapCosts, measure
from engines.native.verify_graph import warm_up_plans

log = logging.getLogger(__name__)

PROMPT_LOGITS = 128
"""Prompt positions whose logits exist at once, where prompt log-probabilities are asked."""


class Copied:
    """A pass whose tokens are on their way to the host."""

    def __init__(
        self, output: StepOutput, places: np.ndarray[tuple[int], np.dtype[np.intp]], tokens: torch.Tensor
    ) -> None:
        """tokens: int [m] on the device, of the batch positions `places`; may change after the pass."""
        self._output, self._places = output, places
        self._tokens = Arriving(tokens)

    def draw(self, masks: TokenMasks | None) -> None:
        """It was drawn in its graph."""
        raise ValueError("this pass has drawn its tokens")

    def wait(self) -> StepOutput:
        self._output.tokens[self._places] = self._tokens.wait()
        return self._output


Draw = Callable[[StepOutput, TokenMasks | None], torch.Tensor]
"""Draws a pass's tokens, int64 [m], and enters log-probabilities in its output."""


class Undrawn:
    """A pass that has come as far as its logits."""

    def __init__(self, output: StepOutput, places: np.ndarray[tuple[int], np.dtype[np.intp]], draw: Draw) -> None:
        self.output, self._places = output, places
        self._draw: Draw | None = draw  # holds the logits
        self._copied: Copied | None = None

    @torch.inference_mode()
    def draw(self, masks: TokenMasks | None) -> None:
        if self._draw is None:
            raise ValueError("this pass has drawn its tokens")
        tokens, self._draw = self._draw(self.output, masks), None
        self._copied = Copied(self.output, self._places, tokens)

    def wait(self) -> StepOutput:
        if self._copied is None:
            raise ValueError("this pass has not drawn its tokens")
        return self._copied.wait()


def _empty_output(plan: StepPlan) -> StepOutput:
    return StepOutput(np.full(len(plan.rows), -1, np.int32), np.full(len(plan.rows), np.nan, np.float32))


class ModelRunner:
    """Implements engines.native.step.Runner. Not thread-safe: one core loop owns it."""

    def __init__(self, config: DecoderConfig, sizes: Sizes, model: Decoder, device: torch.device) -> None:
        self.config, self.model, self.device = config, model, device
        self.depth = 2 if device.type == "cuda" else 1
        self.sizes = sizes
        self.num_blocks, self.block_size = sizes.num_blocks, sizes.block_size
        self._host = _host_memory(model, sizes.host_blocks, sizes.feature_bytes)
        self.host_blocks = sizes.host_blocks if self._host is not None else 0
        self.swap_min_tokens = NEVER  # until it is measured
        self.swap_costs: SwapCosts | None = None
        self.max_model_len, self.vocab_size = sizes.max_model_len, config.vocab
        self.rows = Rows(sizes.max_num_seqs, sizes.max_model_len, sizes.block_size, device)
        self.sampler = model.ops.sampler(sizes.max_num_seqs, config.vocab, device)
        self.sampler.look_back_at(self.rows.tokens)
        self._graphs = None if model.offloaded else model.ops.graphs(model, self.rows, self.sampler)
        self._verify_graphs = None if self._graphs is None else self._graphs.verifying()
        self._prompt_len = np.zeros(sizes.max_num_seqs, np.int32)
        self._prompt_logprobs = np.full(sizes.max_num_seqs, -1, np.int32)

    @property
    def verifies_trees(self) -> bool:
        """Whether a pass may try several ways on from one token: where the operations do, and no layer sees by places
        what a fork has by positions."""
        return self.model.ops.trees and self.config.sees_all

    @property
    def captured(self) -> int:
        """Graphs captured so far; 0 where steps are not graphs."""
        return self._graphs.captured if self._graphs is not None else 0

    def keep(self, layers: Sequence[int], size: int, feature: Feature) -> torch.Tensor:
        """`Decoder.keep`, before the first request. Steps that were captured before are captured anew. The pool goes
        with the blocks to the host and back, where `Sizes.feature_bytes` has its bytes."""
        pool = self.model.keep(layers, size, feature)
        if self._host is not None and not self._host.add(pool):
            log.warning("what a head has the model keep does not go to the host with its tokens: no room was planned")
        if self._graphs is not None:
            self._graphs = self.model.ops.graphs(self.model, self.rows, self.sampler)
            self._verify_graphs = None if self._graphs is None else self._graphs.verifying()
            self.warm_up()
        return pool

    def add(self, row: int, token_ids: list[int], params: SamplingParams, prompt_len: int) -> None:
        self.rows.fill(row, token_ids)
        self.sampler.fill(row, token_ids, params, prompt_len)
        self._prompt_len[row] = prompt_len
        self._prompt_logprobs[row] = params.prompt_logprobs

    def warm_up(self) -> None:
        """Compile the kernels of every kind of step before the first request would wait for it, and capture the largest
        decode first, since smaller ones then use its memory. All tokens go to the null block, in row 0, which the first
        request fills anew."""
        longest = min(self.max_model_len, self.sizes.max_batched_tokens) - 3
        if longest < 1:
            return
        drawn = [SamplingParams(temperature=0), SamplingParams(temperature=1, top_p=0.5), SamplingParams(logprobs=1)]
        anything = TokenMasks(np.zeros(1, np.int64), np.full((1, -(-self.vocab_size // 32)), -1, np.int32))
        for params, masks in ((drawn[1], None), (drawn[0], None), (drawn[0], anything), (drawn[1], anything)):
            self.add(0, [0, 0], params, 2)
            row, one = np.zeros(self.sizes.max_num_seqs, np.int32), np.ones(self.sizes.max_num_seqs, np.int32)
            self.launch(StepPlan(row, one, one, sample=one > 0, masks=masks)).wait()
        for count, params in [*((min(n, longest), drawn[0]) for n in (128, 12, 2)), *((1, each) for each in drawn)]:
            prompt = [0] * (count + 1)
            self.add(0, prompt, params, len(prompt))
            for start, tokens in ((0, count), (count, 1), (count + 1, 1)):
                row, first, much = np.array([[0], [start], [tokens]], np.int32)
                self.launch(StepPlan(row, first, much, sample=np.array([start >= count]))).wait()
        if self._verify_graphs is not None and self.verifies_trees:
            for params in drawn[:2]:
                self.add(0, [0, 0], params, 2)
                for plan in warm_up_plans(longest):
                    self.launch(plan).wait()

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> Pending:
        self.rows.append_blocks(plan)
        if plan.drafts is not None:
            graphed = self._verify_graphs
            return graphed.launch(plan) if graphed is not None and graphed.takes(plan) else self._verify(plan)
        graphs = self._graphs
        if graphs is None or not graphs.takes(plan):
            undrawn = self._pass(plan)
        else:
            everyone = np.arange(len(plan.rows))
            tokens = graphs.launch(plan)
            if tokens is not None:
                return Copied(_empty_output(plan), everyone, tokens)
            logits = graphs.logits(plan)
            if graphs.draws(plan):
                undrawn = Undrawn(_empty_output(plan), everyone, lambda _, masks: graphs.draw(plan, masks))
            else:
                undrawn = self._undrawn(plan, everyone, logits)
        if not plan.late:
            undrawn.draw(plan.masks)
        return undrawn

    def _pass(self, plan: StepPlan) -> Undrawn:
        inputs = StepInputs(plan, self.rows)
        sampled = np.flatnonzero(plan.sample)
        scored = np.flatnonzero(self._prompt_logprobs[plan.rows] >= 0)
        wanted = inputs.cu_host[1:][sampled].astype(np.int64) - 1
        spans = [np.arange(inputs.cu_host[i], inputs.cu_host[i + 1], dtype=np.int64) for i in scored]
        hidden = self.model.hidden(self._batch(plan, inputs, np.concatenate([wanted, *spans])))
        first = len(sampled)
        undrawn = self._undrawn(plan, sampled, self.model.logits(hidden[:first]) if first else None)
        for position, span in zip(scored.tolist(), spans, strict=True):
            self._score_prompt(plan, position, hidden[first : first + len(span)], undrawn.output)
            first += len(span)
        return undrawn

    def _verify(self, plan: StepPlan) -> Pending:
        """A pass with drafts. What they are worth is decided on the host, which nothing else keeps busy meanwhile."""
        assert plan.drafts is not None
        self.rows.write_drafts(plan)
        inputs = StepInputs(plan, self.rows)
        depths = verify.depths_of(plan.drafts)
        lines = verify.lines_of(plan, inputs.cu_host, depths)
        scored = np.flatnonzero(self._prompt_logprobs[plan.rows] >= 0)
        spans = [np.arange(inputs.cu_host[i], inputs.cu_host[i + 1], dtype=np.int64) for i in scored]
        batch = self._batch(plan, inputs, np.concatenate([lines.index, *spans]))
        if not plan.drafts.chains:
            words = verify.ancestor_words(plan, inputs.cu_host)
            assert words is not None
            batch.ancestors = self.rows.send(words)
            batch.positions = inputs.positions.clone()
            tried = lines.place < len(plan.drafts.nodes)
            at = self.rows.send(lines.index[tried])
            batch.positions[at] = self.rows.send(lines.positions[tried].astype(np.int64) - 1)
        hidden = self.model.hidden(batch)
        first = len(lines.index)
        tokens, output = drawing.draw(plan, lines, self.model.logits(hidden[:first]), self.sampler, self.rows)
        held, paths = verify.accept(plan, lines, tokens)
        output.verified = held
        verify.arrange(output, paths, plan.drafts.width + 1)
        self.rows.append_verified(plan, held)
        if moved := verify.moves(plan, paths):
            pairs = self.rows.send(np.array(moved, np.int64).T.copy())
            verify.move(self.model.kv, self.rows.block_tables, self.block_size, pairs)
        for position, span in zip(scored.tolist(), spans, strict=True):
            self._score_prompt(plan, position, hidden[first : first + len(span)], output)
            first += len(span)
        return Finished(output)

    def _undrawn(
        self, plan: StepPlan, sampled: np.ndarray[tuple[int], np.dtype[np.intp]], logits: torch.Tensor | None
    ) -> Undrawn:
        """logits: [m, vocab] of the batch positions `sampled`, good until the next pass; None where m is 0."""

        def draw(output: StepOutput, masks: TokenMasks | None) -> torch.Tensor:
            if logits is None:
                return torch.empty(0, dtype=torch.int64, device=self.device)
            return self._sample(plan, sampled, logits, masks, output)

        return Undrawn(_empty_output(plan), sampled, draw)

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        source, target = (self.rows.send(np.array(ids, np.int64)) for ids in zip(*pairs, strict=True))
        for layer in self.model.kv:
            for plane in planes(*layer):
                plane[target] = plane[source]

    def synchronize(self) -> None:
        """Wait until the device has done all that it was asked."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def swap_out(self, pairs: list[tuple[int, int]]) -> None:
        assert self._host is not None
        self._host.swap_out(pairs)

    def swap_in(self, pairs: list[tuple[int, int]]) -> None:
        assert self._host is not None
        self._host.swap_in(pairs)

    def host_view(self, host: int) -> memoryview:
        """As `HostBlocks.view`."""
        assert self._host is not None
        return self._host.view(host)

    def _batch(
        self, plan: StepPlan, inputs: StepInputs, logits_index: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> Batch:
        rows, size = self.rows, self.block_size
        max_seq = int((plan.start + plan.count).max())
        token_rows = inputs.rows[inputs.token_row]
        blocks = rows.block_tables[token_rows, inputs.positions // size].long()
        return Batch(
            token_ids=rows.tokens[token_rows, inputs.positions].long(),
            positions=inputs.positions,
            slots=blocks * size + inputs.positions % size,
            cu_query=inputs.cu_query,
            seq_lens=inputs.seq_lens,
            block_tables=rows.block_tables[inputs.rows, : -(-max_seq // size)],
            logits_index=rows.send(logits_index),
            max_query=int(plan.count.max()),
            max_seq=max_seq,
            spans=spans_of(plan.start, plan.count, 0 if plan.drafts is None else len(plan.drafts.nodes)),
        )

    def _sample(
        self,
        plan: StepPlan,
        sampled: np.ndarray[tuple[int], np.dtype[np.intp]],
        logits: torch.Tensor,
        masks: TokenMasks | None,
        output: StepOutput,
    ) -> torch.Tensor:
        """Draw, and enter the tokens in their rows; int64 [m]. Log-probabilities, where asked, wait for the device."""
        rows, positions = plan.rows[sampled], (plan.start + plan.count)[sampled]
        asked = self.sampler.logprobs[rows]
        chosen, raw = np.flatnonzero(asked >= 0), None
        if len(chosen):
            index = self.rows.send(chosen)
            raw = logits[index]  # a copy: the sampler may write over its rows
        tokens = self.sampler.sample(logits, rows, positions, masks)
        own, ends = self.rows.send(np.stack([rows, positions]).astype(np.int64))
        self.rows.append_tokens(own, ends, tokens)
        if raw is not None:
            found, top = self.sampler.score(raw, tokens[index], int(asked.max()))
            for at, value, (ids, values) in zip(chosen.tolist(), found, top, strict=True):
                position, count = int(sampled[at]), int(asked[at])
                output.logprobs[position] = value
                output.top[position] = (ids[:count], values[:count])
        return tokens

    def _score_prompt(self, plan: StepPlan, position: int, hidden: torch.Tensor, output: StepOutput) -> None:
        """Log-probabilities of the prompt tokens that follow the ones just computed."""
        row, first = int(plan.rows[position]), int(plan.start[position]) + 1
        count = min(int(plan.count[position]), int(self._prompt_len[row]) - first)
        if count <= 0:
            return
        targets = self.rows.tokens[row, first : first + count].long()
        values: list[float] = []
        tops: list[logprobs.Top] = []
        for at in range(0, count, PROMPT_LOGITS):
            span = slice(at, min(at + PROMPT_LOGITS, count))
            own, top = self.sampler.score(
                self.model.logits(hidden[span]), targets[span], int(self._prompt_logprobs[row])
            )
            values += own
            tops += top
        output.prompt_logprobs[position] = (first, values, tops)


def build_runner(config: EngineConfig, progress: Callable[[float], None] = lambda share: None) -> ModelRunner:
    """Load the model and make its tables. Raises BadModel for its files, ConfigError for sizes that cannot be had.

    progress: called with the share done, 0…1.
    """
    return runner_for(open_model(config.format, dict(config.paths)), config, progress)


def _host_memory(model: Decoder, host_blocks: int, features: int) -> HostBlocks | None:
    """None where none is asked for, or the system gives none: engines serve without it. features: bytes of a block that
    `ModelRunner.keep` adds."""
    if not host_blocks:
        return None
    try:
        return HostBlocks([planes(*layer) for layer in model.kv], host_blocks, features)
    except (RuntimeError, MemoryError) as error:
        log.warning(
            "no host memory for %d swapped blocks, so preempted requests are computed again: %s", host_blocks, error
        )
        return None


def ops_name(config: EngineConfig, sizes: Sizes, device: torch.device) -> str:
    """Of the set of operations in `engines.native.ops.registry`."""
    name = config.ops or (STRICT if config.strict else DEFAULTS)[device.type]
    return name + KV_8 if sizes.kv_cache_dtype else name


def runner_for(
    files: ModelFiles, config: EngineConfig, progress: Callable[[float], None] = lambda share: None
) -> ModelRunner:
    device = device_of(config)
    if device.type == "cpu":
        torch.set_num_threads(config.cores)
    sizes = sizes_of(
        files.config, config, device, files.quantized_size(device.type), files.quant.kv if files.quant else None
    )
    weights = load_weights(
        files, sizes.dtype, device, sizes.max_model_len, progress,
        strict=config.strict, embedding_dtype=config.embedding_dtype,
        offload_layers=config.offload_layers, offload_to=config.offload_to, kept=sizes.kept,
    )  # fmt: skip
    shape = files.config
    pools = make_pools(shape, sizes, device, scales_for(files, weights, sizes, device))
    model = Decoder(shape, weights, make_ops(ops_name(config, sizes, device)), pools)
    log.info(
        "%s on %s in %s: %d blocks of %d tokens, %.0f MiB of KV cache%s",
        shape.architecture,
        device,
        sizes.dtype,
        sizes.num_blocks,
        sizes.block_size,
        sizes.plan.kv_cache / memory.MIB,
        f" in {sizes.kv_cache_dtype}" if sizes.kv_cache_dtype else "",
    )
    runner = ModelRunner(shape, sizes, model, device)
    if device.type == "cuda":
        runner.warm_up()
    else:
        heap.keep()
    if config.strict:
        strict.verify(runner)
    if runner.host_blocks:
        try:
            runner.swap_costs = measure(runner, sizes.max_batched_tokens)
            runner.swap_min_tokens = runner.swap_costs.crossover
        except RuntimeError as error:  # of the device or its memory: swapping is a help, and no need
            log.warning("swapping could not be tried out, so preempted requests are computed again: %s", error)
    progress(1.0)
    return runner
