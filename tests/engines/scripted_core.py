"""A core whose "model" repeats its prompt: the real core process, scheduler and messages, and no weights. The answer to
a prompt of token ids is these ids again, then EOS; so a test writes the answer that it wants to see streamed.

    python -m tests.engines.scripted_core --run-dir … --sockets … --parent …

script.json in the run folder: step_s (seconds a step takes), fail_token (a step that computes it raises),
stall_token (a step that computes it never ends), load_error (text of a failure to load), load_raises (its type, where
it is no ValueError), load_s, blocks, depth (steps in flight).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from engines.api import RunDir
from engines.native.core import Served, parse, serve
from engines.native.request import SamplingParams
from engines.native.scheduler import SchedulerConfig
from engines.native.step import Finished, StepOutput, StepPlan

EOS = 2  # <|im_end|> of SmolLM2
BLOCK_SIZE = 16


class RepeatingRunner:
    block_size = BLOCK_SIZE
    vocab_size = 49152

    def __init__(self, script: dict[str, Any], max_model_len: int, rows: int) -> None:
        self.num_blocks, self.max_model_len = script.get("blocks", 200), max_model_len
        self.depth = script.get("depth", 1)
        self.host_blocks = 0
        self._step_s = script.get("step_s", 0.0)
        self._fail_token, self._stall_token = script.get("fail_token", -1), script.get("stall_token", -1)
        self._tokens: list[list[int]] = [[] for _ in range(rows)]
        self._prompt_len = [0] * rows
        self._params = [SamplingParams()] * rows

    def add(self, row: int, token_ids: list[int], params: SamplingParams, prompt_len: int) -> None:
        self._tokens[row], self._prompt_len[row], self._params[row] = list(token_ids), prompt_len, params

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        """There is no cache to copy."""

    def swap_out(self, pairs: list[tuple[int, int]]) -> None:
        """Nor here."""

    def swap_in(self, pairs: list[tuple[int, int]]) -> None:
        """Nor here."""

    def synchronize(self) -> None:
        """A launched pass is over."""

    def launch(self, plan: StepPlan) -> Finished:
        time.sleep(self._step_s)
        drawn = np.full(len(plan.rows), -1, np.int32)
        logprobs = np.full(len(plan.rows), np.nan, np.float32)
        top = {}
        for i, row in enumerate(plan.rows.tolist()):
            tokens, prompt_len, params = self._tokens[row], self._prompt_len[row], self._params[row]
            start = int(plan.start[i])
            computed = tokens[start : start + int(plan.count[i])]
            if self._fail_token in computed:
                raise RuntimeError("this token is poison")
            if self._stall_token in computed:
                time.sleep(3600)
            if plan.sample[i]:
                written = len(tokens) - prompt_len
                drawn[i] = tokens[written] if written < prompt_len else EOS
                tokens.append(int(drawn[i]))
                if params.logprobs >= 0:
                    logprobs[i] = -0.5
                    top[i] = ([int(drawn[i]), EOS][: params.logprobs], [-0.5, -1.5][: params.logprobs])
        return Finished(StepOutput(drawn, logprobs, top))


def build(run_dir: Path, progress: Callable[[float, str], None]) -> Served:
    spec, _ = RunDir(run_dir).read_spec()
    path = run_dir / "script.json"
    script = json.loads(path.read_text()) if path.exists() else {}
    progress(0.5, "half way")
    time.sleep(script.get("load_s", 0.0))
    if "load_error" in script:
        raise {"RuntimeError": RuntimeError}.get(script.get("load_raises", ""), ValueError)(script["load_error"])
    config = SchedulerConfig(max_num_seqs=8, max_batched_tokens=128)
    return Served(RepeatingRunner(script, spec.max_model_len or 2048, 8), config, {"device": "none"})


if __name__ == "__main__":
    sys.exit(serve(parse(), build))
