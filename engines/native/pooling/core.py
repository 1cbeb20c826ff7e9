"""The core process of a pooling model: a queue and a model, nothing else. Started by the API process, ends with it.

    python -m engines.native.pooling.core --run-dir DIR --sockets DIR --parent PID

One turn of the loop: take in messages, run one pass, send what it brought.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engines.api import RunDir
from engines.native import threads
from engines.native.config import from_launch
from engines.native.core import IDLE_MS, MAX_FAILED_STEPS, parse
from engines.native.ipc import CoreLink, End, Loading, Ready, Shutdown, ToCore
from engines.native.load_failure import load_failure
from engines.native.parent import die_with, is_child_of
from engines.native.pooling.messages import Pool, PoolUpdate
from engines.native.pooling.queue import Queue, Text

log = logging.getLogger(__name__)


class Runner(Protocol):
    def run(self, texts: list[Text]) -> NDArray[np.float32]:
        """float32 [len(texts), width]; texts come shortest first."""
        ...


class PoolingCore:
    def __init__(self, runner: Runner, queue: Queue, link: CoreLink, parent: int) -> None:
        self.runner, self.queue, self.link, self.parent = runner, queue, link, parent
        self._stopping = False
        self._failed = 0  # passes in a row

    def run(self) -> None:
        """Until Shutdown. Raises what a broken device raises, after MAX_FAILED_STEPS tries."""
        while not self._stopping:
            for message in self.link.receive(0 if self.queue.has_work else IDLE_MS):
                self._take(message)
            if self.queue.has_work:
                self.queue.expire(time.monotonic())
                self._pass(self.queue.take())
            elif not is_child_of(self.parent):
                log.warning("the API process is gone")
                self._stopping = True
            if self.queue.ends:
                self._report()

    def _take(self, message: ToCore) -> None:
        match message:
            case Pool():
                self.queue.add(message, time.monotonic())
            case End():
                for request_id in message.ids:
                    self.queue.end(request_id, message.finish)
            case Shutdown():
                self._stopping = True

    def _pass(self, texts: list[Text]) -> None:
        if not texts:
            return
        try:
            vectors = self.runner.run(texts)
        except Exception as error:
            log.exception("a pass of %d texts failed; their requests end with an error", len(texts))
            self.queue.fail(texts, f"the engine failed in this step: {type(error).__name__}: {error}")
            self._failed += 1
            if self._failed >= MAX_FAILED_STEPS:
                self._report()
                raise
            return
        self._failed = 0
        self.queue.done(texts, vectors)
        self._report()  # also where nothing ended: a busy core is seen to live

    def _report(self) -> None:
        queue = self.queue
        self.link.send(PoolUpdate(queue.started, queue.ends, queue.begun, queue.waiting))
        queue.started, queue.ends = [], []


Build = Callable[[Path, Callable[[float, str], None]], tuple[Runner, Queue, int, dict[str, Any]]]
"""(run folder, progress(share, text)) → (runner, queue, tokens of the longest text, facts for state.json). Raises
BadModel or ValueError if the model can't be served."""


def serve(arguments: argparse.Namespace, build: Build) -> int:
    """Load, report, and loop until told to stop. Returns the exit status."""
    die_with(arguments.parent)
    for number in (signal.SIGINT, signal.SIGTERM):  # a signal to the group drains the API process, which ends us
        signal.signal(number, signal.SIG_IGN)
    link = CoreLink(arguments.sockets)
    try:
        try:
            runner, queue, max_tokens, facts = build(
                arguments.run_dir, lambda share, text: link.send(Loading(share, text))
            )
        except Exception as error:  # whatever it is, it is said once, and not tried again and again
            log.exception("the model cannot be served")
            link.send(load_failure(error))
            return 2
        link.send(Ready(1, 0, max_tokens, queue.max_texts, facts))  # of KV blocks it has the null block alone
        PoolingCore(runner, queue, link, arguments.parent).run()
        return 0
    finally:
        link.close()


def build(run_dir: Path, progress: Callable[[float, str], None]) -> tuple[Runner, Queue, int, dict[str, Any]]:
    """The model of the spec in `run_dir`. torch is imported only here."""
    threads.may_spin()
    from engines.native.pooling.runner import build_runner
    from engines.native.sizes import device_of

    spec, local = RunDir(run_dir).read_spec()
    config = from_launch(spec, local)
    if device_of(config).type == "cpu":
        threads.watch(config.cores)
    runner = build_runner(config, lambda share: progress(share, "loading the weights"))
    sizes = runner.sizes
    facts = {
        "task": runner.head.task,
        "architecture": runner.files.config.architecture,
        "device": str(runner.device),
        "dtype": sizes.dtype,
        "max_model_len": sizes.max_tokens,
        "max_num_seqs": sizes.max_texts,
        "max_batched_tokens": sizes.max_batched_tokens,
        "dimensions": runner.width,
        "pooling": runner.head.pool,
        "normalized": runner.head.normalize,
    }
    return runner, Queue(sizes.max_batched_tokens, sizes.max_texts), sizes.max_tokens, facts


if __name__ == "__main__":
    sys.exit(serve(parse(), build))
