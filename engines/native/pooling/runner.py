"""The model side of a pooling core: texts in, one vector each out. Not thread-safe: one core loop owns it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from engines.native import heap
from engines.native.config import EngineConfig
from engines.native.models.encoder import Encoder, EncoderBatch, plan_groups
from engines.native.models.encoder_build import ScoreHead, load_encoder
from engines.native.pooling.config import Head, Pool, Task
from engines.native.pooling.files import PoolingFiles, open_pooling
from engines.native.pooling.memory import PoolingSizes, sizes_of
from engines.native.pooling.queue import Text
from engines.native.sizes import device_of

log = logging.getLogger(__name__)


class Model(Protocol):
    """What turns texts into hidden states; an encoder or a decoder."""

    def states(self, texts: Sequence[Text], wanted: NDArray[np.int64] | None) -> torch.Tensor:
        """The last states of the texts' tokens, one after the other [t, hidden], or of those at `wanted` [m, hidden].
        Texts come in rising order of length."""
        ...


class EncoderModel:
    def __init__(self, encoder: Encoder, device: torch.device) -> None:
        self._encoder, self._device = encoder, device
        self._first = encoder.config.first_position

    def states(self, texts: Sequence[Text], wanted: NDArray[np.int64] | None) -> torch.Tensor:
        lengths = [len(text.token_ids) for text in texts]
        places = [np.arange(length) for length in lengths]
        second = None
        if any(text.second < length for text, length in zip(texts, lengths, strict=True)):
            after = [place >= text.second for place, text in zip(places, texts, strict=True)]
            second = torch.from_numpy(np.concatenate(after))[:, None].to(self._device)
        batch = EncoderBatch(
            token_ids=self._tensor(np.concatenate([text.token_ids for text in texts])),
            positions=self._tensor(np.concatenate(places) + self._first),
            second=second,
            groups=plan_groups(lengths, self._device),
            wanted=None if wanted is None else self._tensor(wanted),
        )
        return self._encoder.hidden(batch)

    def _tensor(self, values: NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(values.astype(np.int64)).to(self._device)


class PoolingRunner:
    def __init__(
        self, files: PoolingFiles, sizes: PoolingSizes, device: torch.device, model: Model, head: ScoreHead | None
    ) -> None:
        self.files, self.sizes, self.device = files, sizes, device
        self.head: Head = files.head
        self.width = self.head.labels or files.config.hidden  # numbers per text
        self._model, self._score = model, head

    @torch.inference_mode()
    def run(self, texts: Sequence[Text]) -> NDArray[np.float32]:
        """float32 [len(texts), width]. Texts in rising order of length, none empty."""
        lengths = np.array([len(text.token_ids) for text in texts])
        ends = np.cumsum(lengths)
        wanted = {Pool.MEAN: None, Pool.CLS: ends - lengths, Pool.LAST: ends - 1}[self.head.pool]
        states = self._model.states(texts, wanted)
        if self._score is not None:
            scores = self._score(states).float()
            vectors = scores.sigmoid() if self.head.sigmoid else scores
        else:
            vectors = self._pooled(states.float(), lengths)
        return vectors.cpu().numpy()

    def _pooled(self, states: torch.Tensor, lengths: NDArray[np.int64]) -> torch.Tensor:
        """[t, hidden] → [n, hidden]; [n, hidden] stays, where one state of each was asked for."""
        if self.head.pool is Pool.MEAN:
            states = torch.segment_reduce(states, "mean", lengths=torch.from_numpy(lengths).to(self.device), axis=0)
        return F.normalize(states, dim=1) if self.head.normalize else states

    def warm_up(self) -> None:
        """Allocate what the largest pass takes, and make the products choose their kernels."""
        from engines.native.pooling.queue import Text

        for length in (min(16, self.sizes.max_tokens), min(self.sizes.max_batched_tokens, self.sizes.max_tokens)):
            self.run([Text(None, 0, np.zeros(length, np.int32), length)])  # type: ignore[arg-type] # nobody's


def build_runner(config: EngineConfig, progress: Callable[[float], None] = lambda _: None) -> PoolingRunner:
    """Raises BadModel for files, ConfigError for settings, that can't be served."""
    return runner_for(open_pooling(config.format, dict(config.paths)), config, progress)


def runner_for(
    files: PoolingFiles, config: EngineConfig, progress: Callable[[float], None] = lambda _: None
) -> PoolingRunner:
    device = device_of(config)
    if device.type == "cpu":
        torch.set_num_threads(config.cores)
    sizes = sizes_of(files, config, device)
    head: ScoreHead | None = None
    model: Model
    if files.encoder is not None:
        encoder, head = load_encoder(files, sizes.dtype, device, progress)
        model = EncoderModel(encoder, device)
    else:
        from engines.native.pooling.decoder import load_decoder

        model = load_decoder(files, sizes, device, progress)
    assert (head is not None) == (files.head.task is Task.SCORE)
    runner = PoolingRunner(files, sizes, device, model, head)
    runner.warm_up()
    if device.type == "cpu":
        heap.keep()
    return runner
