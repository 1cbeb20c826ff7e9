"""What a version is worth, on one machine: perplexity, agreement with another version, speed of one request, memory.

The text is cut whole into windows of 512 tokens (each with the BOS of a tokenizer that adds one; less of a model with
a short context); perplexity is by tokens, over all positions of a window but its first. Agreement is told at 64 places
of each window, evenly apart: of the reference, log-probabilities of the whole vocabulary are kept in a file, so that
one model is in memory at a time.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engines.native import memory_table
from engines.native.compare import Compared
from engines.native.config import EngineConfig
from engines.native.loader.model_files import ModelFiles, open_model
from engines.native.loader.tokenizer import load_tokenizer
from engines.native.offline import Offline
from engines.native.request import SamplingParams

WINDOW = 512  # tokens
WINDOWS = 20
PLACES = 64  # of each window
DECODED = 32  # tokens of one answer
REPEATS = 3

Progress = Callable[[float, str], None]
Logprobs = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of a version with its reference. kl: KL(reference ‖ version), nats per token; same_top: share of places where
    the likeliest token is the same. All NaN where one of the two has logits that are no numbers."""

    kl: float
    kl_p99: float
    same_top: float
    places: int


@dataclass(frozen=True, slots=True)
class Measured:
    """perplexity: NaN where a log-likelihood is no number. weights, process: bytes, of the weights by the engine's own
    count (`memory_table`) and of the whole process. prefill: one prompt of a window; decode: one request after a prompt
    of 32; both the median of three, in tokens/s."""

    tokens: int
    perplexity: float
    weights: int
    process: int
    prefill: float
    decode: float
    device: str
    dtype: str
    bos: bool
    agreement: Agreement | None = None


def windows(files: ModelFiles, text: str, count: int = WINDOWS) -> tuple[list[list[int]], bool]:
    """Of the text, as many as it has; and whether each begins with a BOS. Raises ValueError for a shorter text."""
    window = min(WINDOW, files.config.context_length - DECODED)
    tokenizer, facts = load_tokenizer(files)
    start = [facts.bos_id] if facts.add_bos and facts.bos_id is not None else []
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    width = window - len(start)
    found = [start + ids[at : at + width] for at in range(0, len(ids) - width + 1, width)][:count]
    if not found:
        raise ValueError(f"the text has {len(ids)} tokens; one window of {window} is needed at least")
    return found, bool(start)


def measure(
    model: Compared,
    *,
    device: str,
    text: str,
    options: Mapping[str, Any] | None = None,
    keep: Path | None = None,
    reference: Path | None = None,
    progress: Progress,
) -> Measured:
    """options: of the engine, beyond its defaults. keep: log-probabilities go there; reference: another's, which these
    are compared with. Raises BadModel, ConfigError, or ValueError for a reference of another text or vocabulary."""
    files = open_model(model.format, model.paths)
    cut, bos = windows(files, text)
    config = EngineConfig(
        speculation="off",
        format=model.format, paths=model.paths, device=device, dtype=model.dtype, max_model_len=len(cut[0]) + DECODED,
        max_num_seqs=1, max_batched_tokens=WINDOW + 64, prefix_cache=False, **(options or {}),
    )  # fmt: skip
    progress(0.0, "loading")
    engine = Offline(config)
    runner = engine.runner
    if runner.device.type == "cuda":
        runner.warm_up()
    scores = Scores(runner.vocab_size, len(cut), len(cut[0]), keep, reference)
    runner.sampler.score = scores.heard(runner.sampler.score)  # type: ignore[method-assign] # what it is given is ours
    for index, ids in enumerate(cut):
        progress(0.1 + 0.7 * index / len(cut), f"perplexity, window {index + 1} of {len(cut)}")
        params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
        scores.window(index, engine.generate([ids], params)[0].prompt_logprobs)
    progress(0.8, "speed of one request")
    prefill, decode = _speed(engine, cut)
    told = memory_table.table(runner)
    engine.close()
    scores.close()
    return Measured(
        tokens=scores.tokens,
        perplexity=scores.perplexity,
        weights=next(part["bytes"] for part in told["parts"] if part["part"] == "weights"),
        process=told["total"],
        prefill=prefill,
        decode=decode,
        device=told["device"],
        dtype=told["dtype"],
        bos=bos,
        agreement=scores.agreement(),
    )


def _speed(engine: Offline, cut: list[list[int]]) -> tuple[float, float]:
    """Tokens/s of a prompt and of an answer. Nothing stops an answer early: no stop id is given."""
    prefill, decode = [], []
    for repeat in range(REPEATS):
        ids = cut[repeat % len(cut)]
        prefill.append(len(ids) / engine.generate([ids], SamplingParams(temperature=0, max_tokens=1))[0].first_token_s)
        begun = time.monotonic()
        done = engine.generate([ids[:DECODED]], SamplingParams(temperature=0, max_tokens=DECODED))[0]
        decode.append((len(done.token_ids) - 1) / (time.monotonic() - begun - done.first_token_s))
    return statistics.median(prefill), statistics.median(decode)


@dataclass
class Scores:
    """Sums over windows, and the log-probabilities at some places, kept or compared."""

    vocab: int
    windows: int
    length: int  # tokens of a window
    keep: Path | None
    reference: Path | None
    loss: float = 0.0
    tokens: int = 0
    _index: int = 0
    _seen: int = 0
    _kl: list[float] = field(default_factory=list)
    _same: int = 0
    _kept: Logprobs | None = None
    _other: Logprobs | None = None

    def __post_init__(self) -> None:
        self._places = np.unique(np.linspace(0, self.length - 2, PLACES).round().astype(np.int64))
        shape = (self.windows, len(self._places), self.vocab)
        if self.keep is not None:
            self._kept = np.lib.format.open_memmap(self.keep, "w+", np.float32, shape)
        if self.reference is not None:
            self._other = np.load(self.reference, mmap_mode="r")
            if self._other.shape != shape:
                raise ValueError(
                    f"the reference has {self._other.shape[0]} windows and {self._other.shape[2]:,} tokens in its "
                    f"vocabulary, this one {self.windows} and {self.vocab:,}: they can't be compared"
                )

    def heard(self, score: Callable[..., Any]) -> Callable[..., Any]:
        """`score`, with its logits looked at on their way."""

        def both(logits: torch.Tensor, targets: torch.Tensor, top: int) -> Any:
            self._take(logits)
            return score(logits, targets, top)

        return both

    def window(self, index: int, own: list[float]) -> None:
        """Log-probabilities of the window's tokens from its second on."""
        self.loss -= math.fsum(own)
        self.tokens += len(own)
        self._index, self._seen = index + 1, 0

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss / self.tokens) if math.isfinite(self.loss) else math.nan

    def agreement(self) -> Agreement | None:
        if self._other is None:
            return None
        kl = np.array(self._kl)
        same = math.nan if np.isnan(kl).any() else self._same / len(kl)  # NaN has no likeliest token
        return Agreement(float(kl.mean()), float(np.quantile(kl, 0.99)), same, len(kl))

    def close(self) -> None:
        """What was kept is on the disk."""
        if isinstance(self._kept, np.memmap):
            self._kept.flush()

    def _take(self, logits: torch.Tensor) -> None:
        """logits: [n, vocab], of the window's next n positions."""
        if self._kept is None and self._other is None:
            return
        first, end = np.searchsorted(self._places, (self._seen, self._seen + len(logits)))
        chosen = self._places[first:end] - self._seen
        self._seen += len(logits)
        rows = logits[torch.from_numpy(chosen).to(logits.device)].float().log_softmax(-1).cpu()
        if self._kept is not None:
            self._kept[self._index, first:end] = rows.numpy()
        if self._other is not None:
            before = torch.from_numpy(np.array(self._other[self._index, first:end]))
            # A token that the reference rules out adds nothing; logits that are no numbers stay NaN, never "the same".
            each = torch.where(before.isneginf(), 0.0, before.exp() * (before - rows))
            kl = each.sum(-1).double()
            self._kl += kl.clamp(min=0.0).tolist()  # below 0 by rounding alone
            self._same += int((before.argmax(-1) == rows.argmax(-1)).sum())
