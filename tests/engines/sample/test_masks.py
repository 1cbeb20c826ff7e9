"""Token masks: what is masked is never drawn, the other rows draw what they would have drawn."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engines.native.request import SamplingParams
from engines.native.sample import masks as token_masks
from engines.native.sample.sampler import Sampler
from engines.native.step import TokenMasks

VOCAB, ROWS = 77, 4
CPU = torch.device("cpu")


def packed(flags: np.ndarray) -> np.ndarray:
    """bool [k, vocab] → int32 [k, words]."""
    wide = np.zeros((len(flags), -(-VOCAB // 32) * 32), np.uint8)
    wide[:, :VOCAB] = flags
    return np.packbits(wide, axis=1, bitorder="little").view(np.int32)


@pytest.fixture
def flags() -> np.ndarray:
    made = np.random.default_rng(3).random((2, VOCAB)) < 0.2
    made[:, 31] = made[:, 76] = True  # the sign bit of a word, the last token
    return made


def test_bits_are_tokens(flags: np.ndarray) -> None:
    assert np.array_equal(token_masks.allowed(packed(flags), VOCAB).numpy(), flags)


@pytest.mark.parametrize("places", [[1, 3], [0, 1]])
def test_only_lines_with_a_mask_change(flags: np.ndarray, places: list[int]) -> None:
    logits = torch.randn(ROWS, VOCAB, generator=torch.Generator().manual_seed(1))
    masked = logits.clone()
    token_masks.apply(masked, TokenMasks(np.array(places), packed(flags)))
    for line in range(ROWS):
        if line in places:
            keep = torch.from_numpy(flags[places.index(line)])
            assert torch.equal(masked[line, keep], logits[line, keep])
            assert (masked[line, ~keep] == -torch.inf).all()
        else:
            assert torch.equal(masked[line], logits[line])
    whole = logits[:2].clone()
    token_masks.apply(whole, TokenMasks(np.array([0, 1]), packed(flags)))
    assert ((whole == -torch.inf) == torch.from_numpy(~flags)).all()


def test_masks_among_chosen_rows(flags: np.ndarray) -> None:
    masks = TokenMasks(np.array([1, 3]), packed(flags))
    assert masks.of(np.array([0, 2])) is None
    some = masks.of(np.array([0, 2, 3]))
    assert some is not None
    assert some.places.tolist() == [2]
    assert np.array_equal(some.bits, masks.bits[1:])


ASKS = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 1.5, "top_p": 0.9, "min_p": 0.01},
    {"temperature": 1.0, "top_k": 5, "repetition_penalty": 1.4, "presence_penalty": 1.0},
    {"temperature": 0.0, "logit_bias": dict.fromkeys(range(0, VOCAB, 3), 100.0)},
    {"temperature": 1.0, "min_tokens": 5, "stop_token_ids": [31]},
]


@pytest.mark.parametrize("asks", ASKS)
def test_a_masked_token_is_never_drawn_and_rows_without_mask_draw_as_ever(asks: dict, flags: np.ndarray) -> None:
    generator = torch.Generator().manual_seed(5)
    rows, positions = np.arange(ROWS, dtype=np.int32), np.full(ROWS, 4, np.int32)

    def sampler() -> Sampler:
        made = Sampler(ROWS, VOCAB, CPU)
        made.look_back_at(torch.tensor([[1, 2, 3, 31] + [5] * 30] * ROWS, dtype=torch.int32))
        for row in range(ROWS):
            made.fill(row, [1, 2, 3, 31], SamplingParams(seed=row, **asks), 3)
        return made

    plain, masking = sampler(), sampler()
    for step in range(20):
        logits = torch.randn(ROWS, VOCAB, generator=generator) * 3
        at = positions + step
        free = plain.sample(logits.clone(), rows, at)
        drawn = masking.sample(logits.clone(), rows, at, TokenMasks(np.array([1, 2]), packed(flags)))
        assert drawn[0] == free[0]
        assert drawn[3] == free[3]
        for place in (1, 2):
            assert flags[place - 1][drawn[place]]
