"""The disk tier on real pools and threads: made from a configuration, measured, and found again by the next engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import structs

from engines.api import LaunchSpec
from engines.native import kv_identity, memory
from engines.native.config import ConfigError, EngineConfig
from engines.native.contract import NativeEngine
from engines.native.disk_costs import DiskCosts
from engines.native.disk_setup import facts
from engines.native.offline import Offline
from engines.native.request import SamplingParams
from engines.native.sizes import swap_space
from engines.native.swap_costs import NEVER, SwapCosts, measure
from evaluation.benchmarks.random_model import TINY, random_runner
from tests.engines.test_memory import GIB, SMOLLM2
from tests.engines.weights import golden, smollm2

PATIENCE_S = 100.0
"""Per token, for a disk of a busy machine."""
GREEDY = SamplingParams(temperature=0.0, max_tokens=8)


def config(**changes: Any) -> EngineConfig:
    return EngineConfig(
        **{
            "format": "safetensors",
            "paths": {},
            "device": "cpu",
            "dtype": "float32",
            "max_model_len": 64,
            "max_num_seqs": 2,
            "max_batched_tokens": 40,
            "kv_cache_bytes": 1 << 17,
            "block_size": 8,
            "threads": 1,
        }
        | changes
    )


def tiny(folder: Path, seed: int = 5, **changes: Any) -> Offline:
    chosen = config(kv_disk_path=str(folder), **changes)
    runner = random_runner(TINY, chosen, seed=seed)
    runner.swap_costs = measure(runner, 40)
    runner.swap_min_tokens = 1
    engine = Offline(chosen, runner)
    assert engine.scheduler.host.disk is not None
    engine.scheduler.host.disk.min_tokens = 1
    engine.scheduler.host.disk._compute_s = PATIENCE_S
    return engine


def test_a_restarted_engine_goes_on_from_the_disk_with_the_same_tokens(tmp_path: Path) -> None:
    prompts = [[7 + number, *range(30)] for number in range(3)]
    first = tiny(tmp_path)
    said = first.generate(prompts, GREEDY)
    first.close()
    again = tiny(tmp_path)
    answers = again.generate(prompts, GREEDY)
    assert [answer.cached_tokens for answer in answers] == [24, 24, 24]
    assert [answer.token_ids for answer in answers] == [answer.token_ids for answer in said]
    assert again.scheduler.check() == []
    again.close()
    other = tiny(tmp_path, dtype="bfloat16")
    assert other.generate(prompts[:1], GREEDY)[0].cached_tokens == 0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kv_disk_path": "blocks"}, "kv_disk_path is 'blocks'; give an absolute path"),
        ({"kv_disk_path": "/tmp/x", "prefix_cache": False}, "kv_disk_path is given, but prefix_cache is false"),
        ({"kv_disk_path": 3}, "kv_disk_path is 3; it is a name"),
        ({"kv_disk_bytes": -1}, "kv_disk_bytes is -1"),
    ],
)
def test_what_can_not_be_is_refused_by_name(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        config(**changes)
    assert sentence in str(refusal.value)


def test_a_folder_that_is_none_or_too_little_room_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"kv_disk_path is .*: Not a directory; give a folder"):
        tiny(tmp_path / "file" / "under")
    with pytest.raises(ConfigError, match=r"kv_disk_bytes is 100, but a block of 8 tokens of this model takes 2,136"):
        tiny(tmp_path, kv_disk_bytes=100)


def test_host_memory_for_the_way_is_there_and_in_the_plan(tmp_path: Path) -> None:
    chosen = config(kv_disk_path=str(tmp_path))
    assert swap_space(chosen, torch.device("cpu")) == 0
    runner = random_runner(TINY, chosen, seed=1)
    block = 2 * 2 * 16 * 8 * 4
    assert runner.host_blocks == memory.DISK_STAGING[0] // block
    assert memory.disk_staging(2**20, 16, 16 * 100) == 101 * 2**20
    assert memory.disk_staging(2**20, 16, 16 * 100_000) == memory.DISK_STAGING[1] + 2**20


def test_the_estimate_counts_the_host_memory_beside_a_cpu() -> None:
    spec = LaunchSpec("id", "name", [], "gguf", device="cpu")
    on_disk = structs.replace(spec, options={"kv_disk_path": "/var/kv"})
    room = NativeEngine().fit(SMOLLM2, spec, 0, 4 * GIB).available
    assert room - NativeEngine().fit(SMOLLM2, on_disk, 0, 4 * GIB).available == memory.DISK_STAGING[1]
    beside = structs.replace(on_disk, device="cuda")
    assert NativeEngine().fit(SMOLLM2, beside, 0, 4 * GIB).available == 4 * GIB


@pytest.mark.parametrize(
    ("costs", "tokens"),
    [
        (DiskCosts(0.5, 0.125, SwapCosts(fixed_s=0.25, swap_s=0.125, recompute_s=0.5)), 3),
        (DiskCosts(0.0, 0.0, SwapCosts(fixed_s=1.0, swap_s=0.5, recompute_s=1.0)), 2),
        (DiskCosts(0.0, 2.0, SwapCosts(fixed_s=0.0, swap_s=0.0, recompute_s=1.0)), NEVER),
        (DiskCosts(0.0, 0.0, SwapCosts(fixed_s=0.0, swap_s=2.0, recompute_s=1.0)), NEVER),
    ],
)
def test_the_way_up_is_the_disks_and_the_hosts(costs: DiskCosts, tokens: int) -> None:
    assert costs.crossover == tokens


def test_measured_at_start_and_nothing_of_it_left(tmp_path: Path) -> None:
    engine = tiny(tmp_path, swap_space_bytes=1 << 16)
    disk = engine.scheduler.host.disk
    assert disk is not None
    assert list(tmp_path.rglob("*.kv")) == list(tmp_path.rglob("*.part")) == []
    assert disk.counts().read_bytes == disk.counts().bytes_used == 0
    assert disk.facts()["kv_disk_blocks_found"] == 0


def test_everything_that_decides_a_blocks_bytes_is_in_its_name(tmp_path: Path) -> None:
    chosen = config()
    found = facts(chosen, random_runner(TINY, chosen, seed=1))
    identity = kv_identity.identity(found)
    for changes in ({"dtype": "bfloat16"}, {"block_size": 16}, {"max_model_len": 48}, {"strict": True}):
        other = config(**changes)
        assert kv_identity.identity(facts(other, random_runner(TINY, other, seed=1))) != identity, changes
    same = ({"policy": "length_window"}, {"swap_space_bytes": 1 << 20}, {"max_num_seqs": 1}, {"speculation": "off"})
    for changes in same:
        other = config(**changes)
        assert kv_identity.identity(facts(other, random_runner(TINY, other, seed=1))) == identity, changes
    assert len(kv_identity.code()) == 64


def rewritten(path: Path) -> None:
    path.write_bytes(b"weighty")


def touched(path: Path) -> None:
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize(
    ("known", "change", "same"),
    [(False, rewritten, False), (False, touched, True), (True, rewritten, False), (True, touched, False)],
)
def test_a_model_is_its_files_content(tmp_path: Path, known: bool, change: Callable[[Path], None], same: bool) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    digests = {"model.gguf": "ab" * 32} if known else {}
    before = kv_identity.files({"model.gguf": str(path)}, digests)
    change(path)
    assert (kv_identity.files({"model.gguf": str(path)}, digests) == before) is same


@pytest.mark.weights
@pytest.mark.slow
def test_a_restarted_engine_with_the_real_model(tmp_path: Path) -> None:
    path = smollm2()
    chosen = EngineConfig(
        format="gguf", paths={path.name: str(path)}, device="cpu", dtype="float32", max_model_len=512, max_num_seqs=4,
        kv_cache_bytes=48 * 2**20, kv_disk_path=str(tmp_path), kv_disk_bytes=2**30,
    )  # fmt: skip
    text = [token for line in golden() for token in line["prompt_token_ids"]]
    prompts = [text[:150], text[60:190], [*text[:80], *text[200:220]]]
    first = Offline(chosen)
    said = [first.generate([prompt], GREEDY)[0] for prompt in prompts]
    assert [answer.cached_tokens for answer in said] == [0, 0, 80]
    first.close()
    again = Offline(chosen)
    disk = again.scheduler.host.disk
    assert disk is not None
    assert 1 <= disk.min_tokens < 100, "measured: this model computes slowly, and any disk is faster"
    disk._compute_s = PATIENCE_S
    answers = again.generate(prompts, GREEDY)
    assert [answer.token_ids for answer in answers] == [answer.token_ids for answer in said]
    assert [answer.cached_tokens for answer in answers] == [144, 128, 96]
    assert (disk.counts().hits, disk.counts().late) == (9 + 8 + 1, 0)
    assert disk.counts().read_bytes == 18 * 16 * 2 * 30 * 3 * 64 * 4
    assert again.scheduler.check() == []
    again.close()
