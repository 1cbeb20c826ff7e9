"""Drawing tokens on the GPU, without a sort: scores, threshold, Gumbel-max, reduce.

The scores of a row are, in this order: logits; repetition penalty (tokens of prompt and output), frequency and
presence penalties (output); + bias; −∞ for stop tokens that may not come yet; ÷ temperature. A token may be drawn if
its score is at least the threshold, the highest of
  top-k   the k-th largest score,
  min-p   the largest score + log(min_p),
  top-p   the largest score such that the tokens at or above it hold top_p of the probability that those two leave;
equal scores stay or fall together. The token is argmax(score + noise), lowest id first, with the noise of
`engines.native.sample.noise`; at temperature 0 it is the argmax of the penalised logits and no filter applies.
Its logprob is that of the model: log-softmax of the logits as they came.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from engines.native.kernels.dependent import begin, dependent, wait
from engines.native.sample import noise

BLOCK = 2048  # vocabulary entries per program
SEARCH_BLOCK = 4096  # entries per step of the threshold search
KEPT = 4096  # entries that the search ends on without reading the others again

_A = tl.constexpr(noise.KEY_A)
_B = tl.constexpr(noise.KEY_B)
_MULTIPLY_1 = tl.constexpr(noise.MULTIPLY_1)
_MULTIPLY_2 = tl.constexpr(noise.MULTIPLY_2)
_SERIES_BELOW = tl.constexpr(noise.SERIES_BELOW)


@dataclass(frozen=True, slots=True)
class SamplingTable:
    """Sampling parameters by row, on the device; owned by the runner's row state.

    temperature, top_p, min_p, repetition, presence, frequency: float32 [rows]; top_k: int32 [rows], 0 = off;
    seed: int64 [rows]; output_counts: int32 [rows, v], how often each token was drawn; in_prompt: bool [rows, v];
    bias_ids: int32 and bias_values: float32 [rows, width]; bias_len: int32 [rows], how many of them are set;
    barred_ids: int32 [rows, width], stop tokens that may not be drawn at positions under first_stop, int64 [rows];
    barred_len: int32 [rows].
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    repetition: torch.Tensor
    presence: torch.Tensor
    frequency: torch.Tensor
    seed: torch.Tensor
    output_counts: torch.Tensor
    in_prompt: torch.Tensor
    bias_ids: torch.Tensor
    bias_values: torch.Tensor
    bias_len: torch.Tensor
    barred_ids: torch.Tensor
    barred_len: torch.Tensor
    first_stop: torch.Tensor


@dataclass(frozen=True, slots=True)
class Append:
    """Where drawn tokens go: number `position` of line `row` of history, int32 [rows, length], whose lengths, int32
    [rows], are then position + 1; and tokens, int32 [m], one after the other."""

    history: torch.Tensor
    lengths: torch.Tensor
    tokens: torch.Tensor


@triton.jit
def _mix(x):
    x = x ^ (x >> 16)
    x = x * _MULTIPLY_1
    x = x ^ (x >> 15)
    x = x * _MULTIPLY_2
    return x ^ (x >> 16)


@triton.jit
def _gumbel(seed, position, token):
    """`noise.gumbel` of one row: seed, position int64 scalars, token int32 [block]."""
    low = seed.to(tl.uint32)
    high = (seed >> 32).to(tl.uint32)
    place = position.to(tl.uint32)
    k0 = _mix(_mix(_mix(low + _A) ^ high) ^ place)
    k1 = _mix(_mix(_mix(high + _B) ^ place) ^ low)
    hashed = _mix(_mix(token.to(tl.uint32) ^ k0) + k1)
    uniform = tl.minimum((hashed.to(tl.float32) + 0.5) * (1.0 / 4294967296.0), 1.0 - 1.0 / 16777216.0)
    series = uniform * (1.0 + uniform * (0.5 + uniform * (1.0 / 3.0)))
    return -tl.log(tl.where(uniform < _SERIES_BELOW, series, -tl.log(1.0 - uniform)))


@triton.jit
def _draw(score, token, inside, temperature, seed, position, best, best_token, place):
    """Store the block's largest noisy score and its token."""
    if temperature > 0:
        score += _gumbel(seed, position, token)
    score = tl.where(inside & (score == score), score, float("-inf"))  # a NaN is never drawn
    value, index = tl.max(score, 0, return_indices=True)
    tl.store(best + place, value)
    tl.store(best_token + place, tl.min(tl.where(tl.arange(0, score.shape[0]) == index, token, 2147483647), 0))


@triton.jit(do_not_specialize_on_alignment=["rows", "positions"])
def score_kernel(
    logits, rows, positions, temperatures, repetitions, presences, frequencies, seeds, output_counts, in_prompt,
    bias_ids, bias_values, bias_lens, barred_ids, barred_lens, first_stops,
    scores, raw_max, raw_sum, score_max, best, best_token,
    SIZE, BIAS_WIDTH, BARRED_WIDTH,
    PENALTIES: tl.constexpr, BIAS: tl.constexpr, FILTERED: tl.constexpr, SCORED: tl.constexpr, BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Grid: (rows to draw for, vocabulary blocks). Without filters the block's candidate is drawn here already."""
    begin(DEPENDENT)
    wait(DEPENDENT)
    line, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    row = tl.load(rows + line).to(tl.int64)
    token = part * BLOCK + tl.arange(0, BLOCK)
    inside = token < SIZE
    score = tl.load(logits + line * SIZE + token, mask=inside, other=float("-inf")).to(tl.float32)
    place = line * parts + part
    if SCORED:
        top = tl.max(score, 0)
        tl.store(raw_max + place, top)
        tl.store(raw_sum + place, tl.sum(tl.exp(score - tl.where(top == float("-inf"), 0.0, top)), 0))
    if PENALTIES:
        count = tl.load(output_counts + row * SIZE + token, mask=inside, other=0)
        seen = (count > 0) | (tl.load(in_prompt + row * SIZE + token, mask=inside, other=0) != 0)
        repetition = tl.load(repetitions + row)
        score = tl.where(seen, tl.where(score > 0, score / repetition, score * repetition), score)
        score -= tl.load(frequencies + row) * count.to(tl.float32)
        score -= tl.load(presences + row) * (count > 0).to(tl.float32)
    position = tl.load(positions + line)
    if BIAS:
        for i in range(tl.load(bias_lens + row)):
            biased = tl.load(bias_ids + row * BIAS_WIDTH + i)
            score += tl.where(token == biased, tl.load(bias_values + row * BIAS_WIDTH + i), 0.0)
        if position < tl.load(first_stops + row):
            for i in range(tl.load(barred_lens + row)):
                score = tl.where(token == tl.load(barred_ids + row * BARRED_WIDTH + i), float("-inf"), score)
    temperature = tl.load(temperatures + row)
    if temperature > 0:  # not for all: a division is most of what a greedy row would cost
        score = score / temperature
    score = score + 0.0  # turns −0 into 0
    if FILTERED:
        tl.store(scores + line * SIZE + token, score, mask=inside)
        tl.store(score_max + place, tl.max(score, 0))
    else:
        _draw(score, token, inside, temperature, tl.load(seeds + row), position, best, best_token, place)  # fmt: skip


@triton.jit
def _key(x):
    """int32 with the order of the float32 x."""
    bits = x.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _above(scores, top, first, second, third, SIZE, MASS: tl.constexpr, BLOCK: tl.constexpr):
    """One pass: the entries with keys ≥ each of three pivots, Σ exp(score − top) of them (or their number), then their
    number. Counts of a lane are packed, 10 bits each: at most 1023 blocks."""
    count = tl.zeros([BLOCK], tl.int32)
    sum_1 = tl.zeros([BLOCK], tl.float32)
    sum_2 = tl.zeros([BLOCK], tl.float32)
    sum_3 = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(0, SIZE, BLOCK, num_stages=4):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(scores + i, mask=i < SIZE, other=float("-inf"))
        key = tl.where(i < SIZE, _key(x), -2147483648)
        count += (
            (key >= first).to(tl.int32) + ((key >= second).to(tl.int32) << 10) + ((key >= third).to(tl.int32) << 20)
        )
        if MASS:
            weight = tl.exp(x - top)
            sum_1 += tl.where(key >= first, weight, 0.0)
            sum_2 += tl.where(key >= second, weight, 0.0)
            sum_3 += tl.where(key >= third, weight, 0.0)
    n_1, n_2, n_3 = tl.sum(count & 1023, 0), tl.sum((count >> 10) & 1023, 0), tl.sum(count >> 20, 0)
    if MASS:
        return tl.sum(sum_1, 0), tl.sum(sum_2, 0), tl.sum(sum_3, 0), n_1, n_2, n_3
    return n_1.to(tl.float32), n_2.to(tl.float32), n_3.to(tl.float32), n_1, n_2, n_3


@triton.jit
def _narrow(low, high, first, second, third, w_1, w_2, w_3, target):
    """The quarter of [low, high) that holds the answer, from the weights at or above the pivots."""
    new_low = tl.where(w_3 >= target, third, tl.where(w_2 >= target, second, tl.where(w_1 >= target, first, low)))
    new_high = tl.where(w_3 >= target, high, tl.where(w_2 >= target, third, tl.where(w_1 >= target, second, first)))
    return new_low, new_high


@triton.jit
def _pivots(low, high):
    step = tl.maximum((high - low) // 4, 1)
    return low + step, tl.minimum(low + 2 * step, high - 1), tl.minimum(low + 3 * step, high - 1)


@triton.jit
def _inside(x, low, high):
    return tl.minimum(tl.maximum(_key(x + 0.0).to(tl.int64), low + 1), high - 1)


@triton.jit
def _search(scores, kept, top, low, high, held, target, SIZE, MASS: tl.constexpr, BLOCK: tl.constexpr,
            KEPT: tl.constexpr):  # fmt: skip
    """Largest key in [low, high) whose entries at or above it weigh at least `target`; `low` itself does, and `held`
    entries are at or above it. Passes over the scores until at most KEPT are left, the rest of the search on those."""
    first, second, third = _inside(top - 16.0, low, high), _inside(top - 8.0, low, high), _inside(top - 3.0, low, high)
    while (high - low > 1) & (held > KEPT):
        w_1, w_2, w_3, n_1, n_2, n_3 = _above(
            scores, top, first.to(tl.int32), second.to(tl.int32), third.to(tl.int32), SIZE, MASS, BLOCK
        )  # fmt: skip
        held = tl.where(w_3 >= target, n_3, tl.where(w_2 >= target, n_2, tl.where(w_1 >= target, n_1, held)))
        low, high = _narrow(low, high, first, second, third, w_1, w_2, w_3, target)
        first, second, third = _pivots(low, high)
    if high - low > 1:
        key = _gather(scores, kept, low.to(tl.int32), SIZE, BLOCK, KEPT)
        bits = key ^ ((key >> 31) & 0x7FFFFFFF)
        weight = tl.exp(bits.to(tl.float32, bitcast=True) - top) if MASS else 1.0
        weight = tl.where(key > -2147483648, weight, 0.0)
        while high - low > 1:
            first, second, third = _pivots(low, high)
            w_1 = tl.sum(tl.where(key >= first.to(tl.int32), weight, 0.0), 0)
            w_2 = tl.sum(tl.where(key >= second.to(tl.int32), weight, 0.0), 0)
            w_3 = tl.sum(tl.where(key >= third.to(tl.int32), weight, 0.0), 0)
            low, high = _narrow(low, high, first, second, third, w_1, w_2, w_3, target)
    return low


@triton.jit
def _gather(scores, kept, low, SIZE, BLOCK: tl.constexpr, KEPT: tl.constexpr):
    """Keys of the entries at or above `low`, int32 [KEPT], the smallest int32 past their number. Uses kept [KEPT]."""
    found = 0
    for start in range(0, SIZE, BLOCK):
        i = start + tl.arange(0, BLOCK)
        key = _key(tl.load(scores + i, mask=i < SIZE, other=float("-inf")))
        wanted = ((i < SIZE) & (key >= low)).to(tl.int32)
        tl.store(kept + found + tl.cumsum(wanted, 0) - 1, key, mask=wanted != 0)
        found += tl.sum(wanted, 0)
    tl.debug_barrier()  # written by other threads of this program
    i = tl.arange(0, KEPT)
    return tl.load(kept + i, mask=i < found, other=-2147483648)


@triton.jit(do_not_specialize_on_alignment=["rows"])
def threshold_kernel(
    scores, rows, temperatures, top_ks, top_ps, min_ps, score_max, kept, thresholds, SIZE, PARTS,
    PARTS_BLOCK: tl.constexpr, BLOCK: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    """Grid: rows to draw for. Rows without filters leave at once. A search is 2 to 17 passes over the scores, 2 or 3
    where at most KEPT tokens lie within 16 of the best, as after a trained model."""
    line = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + line)
    top_k, top_p, min_p = tl.load(top_ks + row), tl.load(top_ps + row), tl.load(min_ps + row)
    part = tl.arange(0, PARTS_BLOCK)
    top = tl.max(tl.load(score_max + line * PARTS + part, mask=part < PARTS, other=float("-inf")), 0)
    drawn = (tl.load(temperatures + row) > 0) & (top > float("-inf")) & (top < float("inf"))
    scores += line * SIZE
    kept += line * KEPT
    low = tl.full([], -2147483648, tl.int64)
    high = _key(top).to(tl.int64) + 1
    if drawn & (top_k > 0) & (top_k < SIZE):
        low = _search(scores, kept, top, low, high, SIZE, top_k.to(tl.float32), SIZE, False, BLOCK, KEPT)
    if drawn & (min_p > 0):
        low = tl.maximum(low, _key(top + tl.log(min_p) + 0.0).to(tl.int64))
    if drawn & (top_p < 1):
        pivot = low.to(tl.int32)
        mass, _, _, held, _, _ = _above(scores, top, pivot, pivot, pivot, SIZE, True, BLOCK)
        low = _search(scores, kept, top, low, high, held, mass * top_p, SIZE, True, BLOCK, KEPT)
    threshold = float("-inf")
    if low > -2147483648:
        key = low.to(tl.int32)
        threshold = (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    tl.store(thresholds + line, threshold)


@triton.jit(do_not_specialize_on_alignment=["rows", "positions"])
def draw_kernel(
    scores, rows, positions, temperatures, seeds, thresholds, best, best_token, SIZE, BLOCK: tl.constexpr
):  # fmt: skip
    """Grid: (rows to draw for, vocabulary blocks)."""
    line, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    row = tl.load(rows + line)
    token = part * BLOCK + tl.arange(0, BLOCK)
    inside = token < SIZE
    score = tl.load(scores + line * SIZE + token, mask=inside, other=float("-inf"))
    inside = inside & (score >= tl.load(thresholds + line))
    _draw(score, token, inside, tl.load(temperatures + row), tl.load(seeds + row), tl.load(positions + line),
          best, best_token, line * parts + part)  # fmt: skip


@triton.jit(do_not_specialize_on_alignment=["rows", "positions"])
def finish_kernel(
    logits, best, best_token, raw_max, raw_sum, tokens, logprobs, rows, positions, history, lengths,
    SIZE, PARTS, HISTORY_STRIDE, SCORED: tl.constexpr, PARTS_BLOCK: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Grid: rows to draw for. The block with the largest candidate wins; the lowest token among equals. Where `history`
    is not None, the token becomes number `position` of its row there."""
    begin(DEPENDENT)
    wait(DEPENDENT)
    line = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, PARTS_BLOCK)
    inside = part < PARTS
    place = line * PARTS + part
    value = tl.load(best + place, mask=inside, other=float("-inf"))
    candidate = tl.load(best_token + place, mask=inside, other=2147483647)
    token = tl.min(tl.where(value == tl.max(value, 0), candidate, 2147483647), 0)
    tl.store(tokens + line, token)
    if SCORED:
        top = tl.load(raw_max + place, mask=inside, other=float("-inf"))
        largest = tl.max(top, 0)
        total = tl.sum(tl.load(raw_sum + place, mask=inside, other=0.0) * tl.exp(top - largest), 0)
        chosen = tl.load(logits + line * SIZE + token).to(tl.float32)
        tl.store(logprobs + line, chosen - largest - tl.log(total))
    if history is not None:
        row, position = tl.load(rows + line).to(tl.int64), tl.load(positions + line)
        tl.store(history + row * HISTORY_STRIDE + position, token)
        tl.store(lengths + row, (position + 1).to(tl.int32))


def sample(
    logits: torch.Tensor, rows: torch.Tensor, positions: torch.Tensor, table: SamplingTable, *,
    penalties: bool, bias: bool, filters: bool, scored: bool = True, append: Append | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """(tokens int32 [m], logprobs float32 [m], unless not `scored`) for logits [m, v], contiguous, of any float dtype.

    rows: int32 [m], lines of `table`; positions: int [m], index of the token to be drawn in its sequence.
    penalties, bias (barred tokens too), filters: whether any of the rows uses them, known on the host. append: where
    the tokens go too.
    """
    count, size = logits.shape
    parts = triton.cdiv(size, BLOCK)
    floats = logits.new_empty(4, count, parts, dtype=torch.float32)
    best_token = rows.new_empty(count, parts, dtype=torch.int32)
    tokens = rows.new_empty(count, dtype=torch.int32) if append is None else append.tokens
    logprobs = logits.new_empty(count, dtype=torch.float32)
    scores = logits.new_empty(count, size, dtype=torch.float32) if filters else floats
    if not count:
        return tokens, logprobs
    raw_max, raw_sum, score_max, best = floats.unbind(0)
    follows = dependent(logits.device)
    score_kernel[(count, parts)](
        logits, rows, positions, table.temperature, table.repetition, table.presence, table.frequency, table.seed,
        table.output_counts, table.in_prompt, table.bias_ids, table.bias_values, table.bias_len,
        table.barred_ids, table.barred_len, table.first_stop,
        scores, raw_max, raw_sum, score_max, best, best_token,
        size, table.bias_ids.shape[1], table.barred_ids.shape[1],
        PENALTIES=penalties, BIAS=bias, FILTERED=filters, SCORED=scored, BLOCK=BLOCK, DEPENDENT=follows, num_warps=8,
        launch_pdl=follows,
    )  # fmt: skip
    parts_block = triton.next_power_of_2(parts)
    if filters:
        thresholds = torch.empty_like(logprobs)
        kept = rows.new_empty(count, KEPT)
        threshold_kernel[(count,)](
            scores, rows, table.temperature, table.top_k, table.top_p, table.min_p, score_max, kept, thresholds,
            size, parts, PARTS_BLOCK=parts_block, BLOCK=SEARCH_BLOCK, KEPT=KEPT, num_warps=16,
        )  # fmt: skip
        draw_kernel[(count, parts)](
            scores, rows, positions, table.temperature, table.seed, thresholds, best, best_token, size,
            BLOCK=BLOCK, num_warps=8,
        )  # fmt: skip
    history, lengths = (None, None) if append is None else (append.history, append.lengths)
    finish_kernel[(count,)](
        logits, best, best_token, raw_max, raw_sum, tokens, logprobs, rows, positions, history, lengths,
        size, parts, 0 if history is None else history.stride(0), SCORED=scored, PARTS_BLOCK=parts_block,
        DEPENDENT=follows, num_warps=1, launch_pdl=follows,
    )  # fmt: skip
    return tokens, logprobs
