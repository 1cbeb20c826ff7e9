"""What the Triton operations say of models that they can't run in whole."""

from __future__ import annotations

import logging
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from engines.native.models.config import Moe
from engines.native.ops import library_attention
from engines.native.ops.base import Batch
from engines.native.ops.library_attention import OFTEN
from engines.native.ops.spans import Span
from engines.native.ops.torch_ops import TorchOps
from engines.native.ops.triton_ops import TritonOps
from engines.native.sample.triton_sampler import TritonSampler
from evaluation.benchmarks.kernel_cases import Heads, paged
from evaluation.benchmarks.kernel_checks import attention_reference
from evaluation.benchmarks.random_model import TINY
from tests.engines.kernels.reference import relative_error

pytestmark = pytest.mark.kernels


def test_a_mixture_decodes_without_graphs_and_says_so_once(caplog):
    """Which experts a step needs is read on the host: a captured step would replay another step's choice."""
    moe = Moe(experts=4, active=2, ffn=8, sparse=(True, True))
    rows, sampler = SimpleNamespace(device=torch.device("cuda")), object.__new__(TritonSampler)
    with caplog.at_level(logging.INFO):
        assert TritonOps().graphs(SimpleNamespace(config=replace(TINY, moe=moe)), rows, sampler) is None
    assert sum("without graphs" in record.message for record in caplog.records) == 1


def test_latent_attention_is_refused_and_never_computed_otherwise():
    q, key, table = torch.zeros(1, 2, 8), torch.zeros(1, 8), torch.zeros(4, 4)
    with pytest.raises(ValueError, match="latent attention has no kernel yet"):
        TritonOps().latent_rope_and_cache(q, key, table, object.__new__(Batch), torch.zeros(2, 1, 4, 8))


@pytest.mark.slow
def test_heads_of_prompts_go_to_the_library_and_the_rest_sees_them(monkeypatch):
    """A decode, a chunk, two prompts of whole steps and two that have something left, in one pass."""
    monkeypatch.setattr(library_attention, "STEP", 4)
    monkeypatch.setattr(library_attention, "sdpa_kernel", lambda backend: torch.no_grad())  # a CPU has no cuDNN
    queries, lengths, head = [1, 3, 4, 4, 6, 6], [9, 7, 4, 4, 6, 6], Heads(4, 2, 16)
    case = paged(queries, lengths, head, 4, torch.float16, torch.device("cpu"))
    bounds = np.cumsum([0, *queries]).tolist()
    spans = [
        Span(slice(a, b), slice(bounds[a], bounds[b]), queries[a], prompt)
        for a, b, prompt in ((0, 1, 0), (1, 2, 0), (2, 4, 4), (4, 6, 6))
    ]
    qkv = torch.randn(bounds[-1], (head.query + 2 * head.kv) * head.dim).half()
    ops, cos_sin, taken = TritonOps(), torch.randn(16, head.dim), []
    ops._on(qkv.device).library._there = True
    attend = library_attention.attend
    monkeypatch.setattr(library_attention, "attend", lambda *given: taken.append(len(given[0])) or attend(*given))
    for _ in range(OFTEN + 1):
        taken.clear()
        batch = replace(case.batch, spans=spans, shared={})
        case.q = ops.rope_and_cache(qkv, cos_sin, batch, case.k_cache, case.v_cache, None, None, 1e-5)
        out = ops.attention(case.q, case.k_cache, case.v_cache, batch, 0.25, 0)
    assert taken == [8, 4, 4], "both whole prompts at once, and the heads of the others"
    assert relative_error(out, attention_reference(case, range(len(lengths)), 0.25, 0)) < 2e-3
    plain = TorchOps().attention(case.q, case.k_cache, case.v_cache, case.batch, 0.25, 0)
    assert relative_error(out, plain) < 2e-3

    capped = ops.capped_attention(case.q, case.k_cache, case.v_cache, batch, 0.25, 0, 0.5)
    wanted = TorchOps().capped_attention(case.q, case.k_cache, case.v_cache, case.batch, 0.25, 0, 0.5)
    assert len(taken) == 3, "the library knows no caps"
    assert relative_error(capped, wanted) < 2e-3
    assert relative_error(capped, plain) > 0.02
    windowed = ops.attention(case.q, case.k_cache, case.v_cache, batch, 0.25, 5)
    wanted = TorchOps().attention(case.q, case.k_cache, case.v_cache, case.batch, 0.25, 5)
    assert len(taken) == 4, "nor windows shorter than a prompt"
    assert relative_error(windowed, wanted) < 2e-3
