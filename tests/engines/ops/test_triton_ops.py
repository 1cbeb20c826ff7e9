"""What the Triton operations say of models that they can't run in whole."""

from __future__ import annotations

import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from engines.native.models.config import Moe
from engines.native.ops.base import Batch
from engines.native.ops.triton_ops import TritonOps
from engines.native.sample.triton_sampler import TritonSampler
from evaluation.benchmarks.random_model import TINY

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
