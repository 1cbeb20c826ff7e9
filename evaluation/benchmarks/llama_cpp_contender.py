"""llama.cpp beside our engine, through its own server: run by path with the Python of an environment that has
`xllamacpp` (a wheel with llama.cpp inside; llama-cpp-python is the same library, built for twelve minutes).

    PYTHON evaluation/benchmarks/llama_cpp_contender.py MODEL.gguf SPEC

SPEC: JSON {long: [[token ids]], short: [[token ids]], outputs, threads}. Prints JSON: seconds of each case, as
`quantization` takes them, and MB resident. Imports nothing of ours: it lives in another environment.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any


def server(model: str, threads: int, requests: int) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = 1024 * requests
    params.n_parallel = requests
    params.n_batch = 512
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.warmup = True
    return xllamacpp.Server(params)


class Contender:
    def __init__(self, model: str, threads: int, requests: int) -> None:
        self._server = server(model, threads, requests)

    def seconds(self, prompts: list[list[int]], outputs: int) -> float:
        """All at once, from the first request to the last token."""
        begun = time.perf_counter()
        with ThreadPoolExecutor(len(prompts)) as pool:
            answers = list(pool.map(lambda ids: self._complete(ids, outputs), prompts))
        taken = time.perf_counter() - begun
        for answer in answers:
            found = answer["usage"]["completion_tokens"]
            if found != outputs:
                raise RuntimeError(f"{found} tokens came where {outputs} were asked for")
        return taken

    def _complete(self, ids: list[int], outputs: int) -> Any:
        body = {
            "prompt": ids, "max_tokens": outputs, "temperature": 0, "ignore_eos": True, "cache_prompt": False,
        }  # fmt: skip
        return self._server.handle_completions(body)


def measure(model: str, spec: dict[str, Any]) -> dict[str, float]:
    long, short, outputs = spec["long"], spec["short"], spec["outputs"]
    contender = Contender(model, spec["threads"], len(short))
    contender.seconds([short[0]], 4)  # warm up
    figures = {"prefill": median(contender.seconds([ids], 1) for ids in long)}
    first = median(contender.seconds([ids], 1) for ids in short[:3])
    whole = median(contender.seconds([ids], outputs + 1) for ids in short[:3])
    figures["decode"] = (whole - first) / outputs
    figures["concurrent"] = contender.seconds(short, outputs) / (len(short) * outputs)
    with open("/proc/self/statm") as file:
        figures["resident"] = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return figures


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], json.loads(sys.argv[2]))))
