"""Prefill and decode apart: the formulas' check values, the advice, and what is never claimed."""

from __future__ import annotations

import itertools
import math

import pytest

from evaluation.planner import hardware, pd, schemes, util_grid
from evaluation.planner.capacity import Bounds, Mean, at_rate, largest
from evaluation.planner.model_spec import from_config
from evaluation.planner.roofline import Roof, decode, prefill
from evaluation.planner.util_grid import Measurement, Timing
from tests.evaluation.planner import models

QWEN = from_config(models.QWEN3_32B)


def _timing(config=models.LLAMA31_8B, gpu: str = "h100") -> Timing:
    roof = Roof(from_config(config), hardware.gpu(gpu), schemes.scheme("bfloat16"), "bfloat16")
    rows = [
        Measurement(kind="decode", rows=rows, context=512, seconds=roof.sol(decode(rows, 512)) / 0.7)
        for rows in (1, 32, 256)
    ]
    rows.append(Measurement(kind="prefill", tokens=4096, seconds=roof.sol(prefill(4096)) / 0.6))
    return Timing(roof, util_grid.fit(roof, rows))


@pytest.mark.parametrize(("rate", "seconds"), [(1, 0.225), (3, 0.35), (4, 0.60)])
def test_m_d_1(rate, seconds):
    assert pd.ttft_md1(0.2, rate) == pytest.approx(seconds)


def test_tensor_parallelism_wins_at_low_rates_and_stages_at_high_ones():
    assert pd.ttft_tp(0.2, 1, 2) == pytest.approx(0.1 + 0.04 / (4 * 1.8))
    assert pd.ttft_pp2(0.2, 1) == pytest.approx(0.2 + 0.04 / (4 * 1.8))
    assert pd.ttft_tp(0.2, 1, 2) < pd.ttft_pp2(0.2, 1)
    assert pd.ttft_tp(0.2, 1, 1) == pd.ttft_md1(0.2, 1)
    assert pd.ttft_md1(0.2, 5) == pd.ttft_tp(0.2, 10, 2) == pd.ttft_pp2(0.2, 10) == math.inf


def test_hand_over_times():
    """Qwen3-32B, 4,900 tokens, 1.20 GiB: 51 ms at 200 Gb/s, 40 ms over PCIe 4, 2.9 ms over NVLink."""
    for bandwidth, ms in ((200e9 / 8, 51), (32e9, 40), (450e9, 2.9)):
        assert pd.transfer_s(QWEN, "bfloat16", 4900, bandwidth) * 1e3 == pytest.approx(ms, rel=0.02)


def test_rates_match():
    assert pd.matched(2, 5.0, 3, 4.0) == pytest.approx(min(2 * 5 * 0.9, 3 * 4 * 0.92))
    best = pd.split(8, 2.0, 6.0)
    assert best.rate == max(pd.matched(x, 2.0, 8 - x, 6.0) for x in range(1, 8))
    assert best.prefills == 6


def test_tiny_outputs_are_advised_against():
    """Case 27 (vLLM #23144): 1,024 in and 6 out, 1P1D was slower than two instances that do both."""
    advice = pd.advise(
        _timing(), Mean(1024, 0, 6), Bounds(256, 300_000, 8192, 0.05), instances=2, rate=8, kv_dtype="bfloat16",
        link=450e9,
    )  # fmt: skip
    assert not advice.advised
    assert {line.code for line in advice.reasons} >= {"pd_tiny_output", "pd_no_gain"}
    assert (advice.prefill_instances, advice.decode_instances) == (1, 1)
    assert advice.sequences_per_s < 0.7 * advice.mixed_sequences_per_s


def test_a_tight_limit_between_tokens_is_what_splitting_is_for():
    """The seed's range: throughput up, TPOT down, TTFT up."""
    timing = _timing()
    mean = Mean(3000, 0, 500)
    limit = 1.2 * timing.seconds(decode(1, mean.context))
    bounds = Bounds(256, 900_000, 8192, limit)
    advice = pd.advise(timing, mean, bounds, instances=8, rate=20, kv_dtype="bfloat16", link=450e9)
    assert advice.advised, advice.reasons
    assert advice.sequences_per_s > 1.1 * advice.mixed_sequences_per_s
    assert advice.tpot_change < 0
    assert advice.ttft_change > 0
    assert "pd_admission" in {line.code for line in advice.reasons}


def test_a_link_slower_than_computing_is_advised_against():
    advice = pd.advise(
        _timing(models.LLAMA2_7B, "h100"), Mean(3000, 0, 300), Bounds(64, 200_000, 8192, 0.03), instances=4, rate=5,
        kv_dtype="bfloat16", link=1e9,
    )  # fmt: skip
    assert "pd_slow_link" in {line.code for line in advice.reasons}
    assert not advice.advised


def test_no_answer_ever_says_that_a_first_token_comes_sooner():
    timing = _timing()
    for prompt, output, instances, rate in itertools.product((64, 1024, 8000), (2, 40, 800), (2, 6), (0.5, 30)):
        advice = pd.advise(
            timing, Mean(prompt, 0, output), Bounds(256, 400_000, 8192, 0.02), instances=instances, rate=rate,
            kv_dtype="bfloat16", link=450e9,
        )  # fmt: skip
        assert advice.ttft_change >= 0
        assert advice.prefill_instances + advice.decode_instances == instances


def test_the_fixed_point_of_a_rate():
    timing = _timing()
    mean, bounds = Mean(500, 0, 200), Bounds(256, 400_000, 8192, 0.05)
    point = at_rate(timing, mean, bounds, 5.0)
    assert point is not None
    assert point.rows == pytest.approx(5.0 * 199 * point.tpot_s, rel=1e-3)
    best = largest(timing, mean, bounds)
    assert best is not None
    assert at_rate(timing, mean, bounds, best.rate * 1.02) is None or best.tpot_s > 0.049
    assert largest(timing, mean, Bounds(256, 400_000, 8192, 1e-6)) is None
