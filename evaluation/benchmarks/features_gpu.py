"""What an engine can be told to do with its memory, on a GPU and real weights: does it still write the same tokens?

    python -m evaluation.benchmarks.features_gpu MODEL.gguf

Greedy, in float32, prompts of random tokens beside ones that begin alike. Each way is compared with the plain engine;
it must also have done what it is there for (blocks swapped, prefixes found again on disk), or the comparison says
nothing. An int8 embedding table rounds, so there the share of equal first tokens is printed. Prints a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from engines.native.config import EngineConfig
from engines.native.offline import Generated, Offline
from engines.native.request import SamplingParams

LENGTH, OUTPUTS, ROWS = 700, 160, 24
BEGIN = 320
"""Tokens that every second prompt has in common with the others."""
FEW_TOKENS = 3000
"""That a small pool holds: fewer than all rows need together."""


def prompts(vocab: int) -> list[list[int]]:
    chooser = random.Random(5)
    common = [chooser.randrange(vocab) for _ in range(BEGIN)]
    own = [[chooser.randrange(vocab) for _ in range(chooser.randrange(40, LENGTH - BEGIN))] for _ in range(ROWS)]
    return [common + ids if row % 2 else ids for row, ids in enumerate(own)]


class Ways:
    """token_bytes: of one token's keys and values; 0 before the first run, which is the plain one."""

    def __init__(self, model: Path) -> None:
        self._fields: dict[str, Any] = {
            "format": "gguf", "paths": {model.name: str(model)}, "dtype": "float32", "max_model_len": 1024,
            "speculation": "off",
            "max_num_seqs": ROWS, "max_batched_tokens": 1024, "kv_cache_bytes": 2**30,
            "device": "cuda" if torch.cuda.is_available() else "cpu",
        }  # fmt: skip
        self.token_bytes = 0
        self._asked: list[list[int]] = []
        self._plain: list[list[int]] = []

    def run(self, check: Callable[[Offline, list[Generated]], str] | None = None, **changes: Any) -> dict[str, Any]:
        """check: "" where the engine has done what it was told to, else what it has not."""
        engine = Offline(EngineConfig(**self._fields | changes))
        held = engine.runner.num_blocks * engine.runner.block_size
        self.token_bytes = self.token_bytes or -(-engine.runner.sizes.plan.kv_cache // held)
        self._asked = self._asked or prompts(engine.runner.vocab_size)
        # Outputs that end early are what admission then expects: it lets in more rows than fit, and some must leave.
        engine.generate([ids[:20] for ids in self._asked], SamplingParams(temperature=0, max_tokens=2))
        begun = time.monotonic()
        found = engine.generate(self._asked, SamplingParams(temperature=0, max_tokens=OUTPUTS))
        seconds = time.monotonic() - begun
        ids = [one.token_ids for one in found]
        self._plain = self._plain or ids
        missing = check(engine, found) if check else ""
        engine.close()
        return {
            "rows_that_differ": sum(a != b for a, b in zip(ids, self._plain, strict=True)),
            "same_first_token": sum(a[:1] == b[:1] for a, b in zip(ids, self._plain, strict=True)),
            "rows": ROWS,
            "seconds": round(seconds, 2),
            **({"missing": missing} if missing else {}),
        }


def swapped(engine: Offline, _: list[Generated]) -> str:
    return "" if engine.scheduler.host.swaps else "no blocks were swapped"


def preempted(engine: Offline, _: list[Generated]) -> str:
    return "" if engine.scheduler.preemptions else "nothing was preempted"


def found_again(_: Offline, results: list[Generated]) -> str:
    return "" if sum(one.cached_tokens for one in results) > ROWS * 100 else "no prefixes came back"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a GGUF file")
    ways = Ways(parser.parse_args().model)
    done: dict[str, dict[str, Any]] = {}

    def note(name: str, result: dict[str, Any]) -> None:
        done[name] = result
        print(name, result, flush=True)

    note("plain", ways.run())
    note("prefix cache off", ways.run(prefix_cache=False))
    small = {"kv_cache_bytes": FEW_TOKENS * ways.token_bytes, "prefix_cache": False}
    note("recomputed", ways.run(preempted, swap_space_bytes=0, **small))
    note("swapped", ways.run(swapped, swap_space_bytes=2**30, **small))
    note("layers on the host", ways.run(offload_layers=12))
    note("layers on disk", ways.run(offload_layers=12, offload_to="disk"))
    with tempfile.TemporaryDirectory() as folder:
        note("disk tier, written", ways.run(kv_disk_path=folder, swap_space_bytes=2**30))
        note("disk tier, read", ways.run(found_again, kv_disk_path=folder, swap_space_bytes=2**30))
    note("int8 embedding", ways.run(embedding_dtype="int8"))
    print(json.dumps(done))


if __name__ == "__main__":
    main()
