"""What embeds in `evaluation.benchmarks.embeddings`, each in a process of its own. Nothing heavy is imported above: the
peer's interpreter need not have our server's packages, nor ours the peer's."""

from __future__ import annotations

import json
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

MAX_TOKENS = 256
CLIENTS, TEXTS_OF_A_REQUEST = 4, 64
WARM_UP = 16  # texts


def texts(data: Path, count: int) -> list[str]:
    """Of mixed lengths, in a random order: questions of GSM8K, instructions, docstrings, WikiText paragraphs."""
    found = [line for line in (data / "wikitext2" / "wiki.test.raw").read_text("utf-8").splitlines() if len(line) > 20]
    for path in sorted(data.glob("gsm8k/*.jsonl")):
        found += [json.loads(line)["question"] for line in path.read_text("utf-8").splitlines()]
    random.Random(7).shuffle(found)
    return found[:count]


def measure(contender: str, model: Path, data: Path, count: int) -> dict[str, float]:
    wanted = texts(data, count)
    return {"peer": _peer, "core": _core, "http": _http}[contender](model, wanted)


def peer_name(python: str) -> str:
    if not python:
        return "transformers, sorted batches of 32"
    code = "import sentence_transformers; print(sentence_transformers.__version__)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return f"sentence-transformers {done.stdout.strip()}"


class Clock:
    """Wall time and the processor time of processes, ours or the given ones, since it was made; s."""

    def __init__(self, processor: Callable[[], float] = time.process_time) -> None:
        self._processor = processor
        self._began, self._used = time.perf_counter(), processor()

    def figures(self, texts: int, tokens: int, vectors: Any) -> dict[str, float]:
        """checksum: mean over the texts of the absolute sum of a vector, the same for the same vectors."""
        seconds, used = time.perf_counter() - self._began, self._processor() - self._used
        checksum = float(abs(vectors.sum(axis=1)).mean())
        return {"seconds": seconds, "processor": used, "texts": texts, "tokens": tokens, "checksum": checksum}


def _tokens(model: Path, wanted: list[str]) -> int:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return sum(len(encoding) for encoding in tokenizer.encode_batch(wanted))


def _peer(model: Path, wanted: list[str]) -> dict[str, float]:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        encode = _by_transformers(model)
    else:
        loaded = SentenceTransformer(str(model), device="cpu")
        encode = partial(loaded.encode, batch_size=32, show_progress_bar=False)
    encode(wanted[:WARM_UP])
    tokens, clock = _tokens(model, wanted), Clock()
    vectors = encode(wanted)
    return clock.figures(len(wanted), tokens, vectors)


def _by_transformers(model: Path) -> Any:
    import numpy as np
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, loaded = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model).eval()

    @torch.inference_mode()
    def encode(batch: list[str]) -> Any:
        order = sorted(range(len(batch)), key=lambda index: -len(batch[index]))
        vectors = np.empty((len(batch), loaded.config.hidden_size), np.float32)
        for at in range(0, len(order), 32):
            chosen = order[at : at + 32]
            inputs = tokenizer(
                [batch[index] for index in chosen], padding=True, truncation=True, max_length=MAX_TOKENS,
                return_tensors="pt",
            )  # fmt: skip
            mask = inputs["attention_mask"][..., None].float()
            means = (loaded(**inputs).last_hidden_state * mask).sum(1) / mask.sum(1)
            vectors[chosen] = torch.nn.functional.normalize(means, dim=1).numpy()
        return vectors

    return encode


def _paths(model: Path) -> dict[str, str]:
    return {str(path.relative_to(model)): str(path) for path in model.rglob("*") if path.is_file()}


def _core(model: Path, wanted: list[str]) -> dict[str, float]:
    """The core's queue and runner, fed as the API process feeds them."""
    import asyncio

    import numpy as np

    from engines.native.config import EngineConfig
    from engines.native.loader.tokenizer import load_tokenizer
    from engines.native.pooling.messages import Pool
    from engines.native.pooling.queue import Queue
    from engines.native.pooling.runner import build_runner
    from engines.native.serve.pooling import pooling_text

    runner = build_runner(
        EngineConfig(speculation="off", format="safetensors", paths=_paths(model), device="cpu", dtype="float32")
    )
    text = pooling_text(runner.files, load_tokenizer(runner.files)[0])

    def encode(batch: list[str]) -> Any:
        queue = Queue(runner.sizes.max_batched_tokens, runner.sizes.max_texts)
        tokens = asyncio.run(text.encode(batch, batch, MAX_TOKENS))
        ids = np.array([token for each in tokens for token in each.ids], np.int32)
        lengths = np.array([len(each.ids) for each in tokens], np.int32).tobytes()
        queue.add(Pool(1, ids.tobytes(), lengths, lengths), 0.0)
        while queue.has_work:
            taken = queue.take()
            queue.done(taken, runner.run(taken))
        return np.frombuffer(queue.ends[0].vectors, np.float32).reshape(len(batch), -1), len(ids)

    encode(wanted[:WARM_UP])
    clock = Clock()
    vectors, tokens = encode(wanted)
    return clock.figures(len(wanted), tokens, vectors)


def _http(model: Path, wanted: list[str]) -> dict[str, float]:
    from engines.api import LaunchSpec, Local, ModelFile, Phase, RunDir

    with tempfile.TemporaryDirectory(prefix="ts-bench-") as folder:
        run_dir, token, paths = RunDir(Path(folder)), secrets.token_hex(8), _paths(model)
        files = [ModelFile(name, "0" * 64, Path(path).stat().st_size) for name, path in paths.items()]
        spec = LaunchSpec(
            instance_id="b", served_name="m", files=files, format="safetensors", device="cpu", dtype="float32"
        )
        run_dir.write_spec(spec, Local(paths=paths, host="127.0.0.1", port=0, token=token, epoch=1))
        with open(run_dir.log_path, "wb") as log:
            command = [sys.executable, "-m", "engines.native.serve", "--run-dir", folder]
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            while (state := run_dir.read_state()) is None or state.phase is not Phase.READY:
                if process.poll() is not None:
                    raise RuntimeError(run_dir.log_path.read_text()[-2000:])
                time.sleep(0.05)
            return _asked(f"http://127.0.0.1:{state.port}/v1/embeddings", token, wanted, process.pid)
        finally:
            process.terminate()
            process.wait(60)


def _asked(url: str, token: str, wanted: list[str], pid: int) -> dict[str, float]:
    """pid: of the API process, whose child is the core."""
    import base64
    import urllib.request

    import numpy as np
    import psutil

    def ask(batch: list[str]) -> tuple[Any, int]:
        body = {"model": "m", "input": batch, "encoding_format": "base64", "truncate_prompt_tokens": -1}
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=300) as response:
            answer = json.load(response)
        packed = b"".join(base64.b64decode(row["embedding"]) for row in answer["data"])
        return np.frombuffer(packed, "<f4").reshape(len(batch), -1), answer["usage"]["prompt_tokens"]

    batches = [wanted[at : at + TEXTS_OF_A_REQUEST] for at in range(0, len(wanted), TEXTS_OF_A_REQUEST)]
    server = psutil.Process(pid)

    def used() -> float:
        times = [process.cpu_times() for process in (server, *server.children())]
        return float(sum(each.user + each.system for each in times))

    ask(wanted[:WARM_UP])
    with ThreadPoolExecutor(CLIENTS) as clients:
        clock = Clock(used)
        answers = list(clients.map(ask, batches))
        vectors = np.concatenate([vectors for vectors, _ in answers])
        return clock.figures(len(wanted), sum(tokens for _, tokens in answers), vectors)
