"""Whole prompts by cuDNN: here what it is given and when; the numbers are checked on a GPU by kernels_gpu."""

import pytest
import torch
import torch.nn.functional as F

from engines.native.ops import library_attention
from engines.native.ops.library_attention import OFTEN, REMEMBERED, STEP, LibraryAttention, groups

pytestmark = pytest.mark.kernels


@pytest.fixture
def hopper(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    return LibraryAttention(torch.device("cuda"))


def test_a_length_is_taken_when_it_keeps_coming(hopper):
    assert [hopper.takes(STEP, 128, torch.bfloat16) for _ in range(OFTEN + 2)] == [0] * OFTEN + [STEP, STEP]
    assert hopper.takes(2 * STEP - 1, 128, torch.bfloat16) == STEP, "the head of a longer prompt has the same shape"
    assert not hopper.takes(2 * STEP, 128, torch.bfloat16)


def test_lengths_that_stay_away_are_forgotten(hopper):
    for steps in [1] * OFTEN + list(range(2, 2 + REMEMBERED)):
        assert not hopper.takes(steps * STEP, 64, torch.float16)
    assert not hopper.takes(STEP, 64, torch.float16)


@pytest.mark.parametrize(("head_dim", "dtype"), [(256, torch.bfloat16), (100, torch.bfloat16), (64, torch.float32)])
def test_what_it_cannot_do_is_never_given(hopper, head_dim, dtype):
    assert not any(hopper.takes(512, head_dim, dtype) for _ in range(OFTEN + 1))


def test_nor_is_anything_on_a_cpu():
    here = LibraryAttention(torch.device("cpu"))
    assert not any(here.takes(512, 64, torch.bfloat16) for _ in range(OFTEN + 1))


@pytest.mark.parametrize("prompts", range(1, 20))
def test_any_number_of_prompts_is_few_shapes(prompts):
    parts = groups(prompts)
    assert [place for part in parts for place in range(part.start, part.stop)] == list(range(prompts))
    sizes = [part.stop - part.start for part in parts]
    assert all(size & (size - 1) == 0 for size in sizes)
    assert len(set(sizes)) == len(sizes)


def test_rows_of_a_strided_product_are_attended_to_one_by_one(monkeypatch):
    """Values are read where the product left them, and prompts do not see each other."""
    monkeypatch.setattr(library_attention, "sdpa_kernel", lambda backend: torch.no_grad())  # a CPU has no cuDNN
    qkv = torch.randn(3 * 5, (4 + 2 * 2) * 8)
    q, k, v = (part.unflatten(1, (-1, 8)) for part in qkv.split([32, 16, 16], 1))
    found = library_attention.attend(q.contiguous(), k.contiguous(), v, None, 3, 0.5)
    into = torch.full_like(found, torch.nan)
    assert library_attention.attend(q.contiguous(), k.contiguous(), v, into, 3, 0.5) is into
    assert torch.equal(into, found)
    for row in (slice(0, 5), slice(5, 10), slice(10, 15)):
        keys, values = (x[row].repeat_interleave(2, 1).transpose(0, 1) for x in (k, v))
        alone = F.scaled_dot_product_attention(q[row].transpose(0, 1), keys, values, is_causal=True, scale=0.5)
        assert torch.allclose(found[row], alone.transpose(0, 1), atol=1e-6)
