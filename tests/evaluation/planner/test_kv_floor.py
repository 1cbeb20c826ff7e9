"""The KV floor: the reference's worked example, and what a distribution needs against N × the longest."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.planner import hardware, kv_floor, memory, schemes
from evaluation.planner.model_spec import from_config
from evaluation.profile import Arrivals, BusinessProfile, Lengths, PrefixGroup, fixed
from tests.evaluation.planner import models

GIB = 2**30
QWEN = from_config(models.QWEN3_32B)
H100 = hardware.gpu("h100")
ENGINE = memory.native(H100, schemes.scheme("bfloat16"))


def _profile(lengths: Lengths, prefix: int = 0, rate: float = 3.0) -> BusinessProfile:
    groups = [PrefixGroup(prefix_tokens=prefix)] if prefix else []
    return BusinessProfile(name="p", arrivals=Arrivals(rate=rate), lengths=lengths, groups=groups)


def test_the_worked_example():
    """Qwen3-32B, 4,500 shared + 400 user + 10 out, 3/s, 2 s: N = 6, 7.19 GiB unshared and 1.70 shared (section 2.2)."""
    found = kv_floor.floor(QWEN, "bfloat16", _profile(fixed(400, 10), 4500), ENGINE, e2el_s=2.0)
    assert found.in_flight == 6
    assert found.tokens_unshared * 262_144 / GIB == pytest.approx(7.19, abs=0.005)
    assert found.tokens_shared * 262_144 / GIB == pytest.approx(1.70, abs=0.005)
    assert found.fragmentation == 6 * 8 * 262_144
    assert 0 <= found.unshared - found.fragmentation - found.tokens_unshared * 262_144 < 17 * 262_144
    assert found.bursty_unshared > found.unshared  # a Poisson number in flight exceeds its mean


def test_a_quantile_of_sums_is_far_below_the_theoretical_maximum():
    lengths = Lengths(pairs=[(100, 50)] * 95 + [(8000, 2000)] * 5)
    found = kv_floor.floor(QWEN, "bfloat16", _profile(lengths, rate=20), ENGINE, e2el_s=5.0)
    assert found.in_flight == 100
    chooser = np.random.default_rng(7)
    table = np.array(lengths.pairs)[chooser.integers(0, 100, (20_000, 100))]
    sums = (table[..., 0] + table[..., 1] * chooser.random((20_000, 100))).sum(1)
    assert found.tokens_unshared == pytest.approx(np.quantile(sums, 0.99), rel=0.03)
    assert found.tokens_unshared < 0.15 * 100 * 10_000


def test_lookahead_and_whole_blocks_are_counted():
    profile = _profile(fixed(100, 1))
    plain = kv_floor.floor(QWEN, "bfloat16", profile, ENGINE, e2el_s=1.0)
    ahead = kv_floor.floor(QWEN, "bfloat16", profile, ENGINE, e2el_s=1.0, lookahead=8)
    assert ahead.unshared - plain.unshared == 3 * 8 * 262_144
    assert (plain.unshared - plain.fragmentation) % (16 * 262_144) == 0


def test_the_same_seed_gives_the_same_floor():
    profile = _profile(Lengths(pairs=[(10, 5), (900, 300)]))
    one, other = (kv_floor.floor(QWEN, "bfloat16", profile, ENGINE, e2el_s=4.0, seed=3) for _ in range(2))
    assert one == other


def test_windows_that_an_engine_lets_go_of():
    gemma = from_config(models.GEMMA3_1B)
    saving = memory.native(H100, schemes.scheme("bfloat16"), saves_windows=True)
    profile = _profile(fixed(4000, 100))
    whole, less = (kv_floor.floor(gemma, "bfloat16", profile, each, e2el_s=2.0) for each in (ENGINE, saving))
    assert less.unshared < 0.35 * whole.unshared
