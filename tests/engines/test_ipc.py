"""Messages between API process and core."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from engines.native import ipc
from engines.native.request import Finish, SamplingParams, TimeoutLayer, Timeouts


def test_every_message_comes_back_as_it_went() -> None:
    params = SamplingParams(temperature=0.5, logit_bias={5: -1.0}, stop_token_ids=[2], logprobs=3)
    tokens = np.array([1, 2, 49151], np.int32).tobytes()
    for sent in (
        ipc.Add(2**40, tokens, params, -3, "salt", Timeouts(1.5, None, 0.0), "team"),
        ipc.End([1, 2], Finish.STOP),
        ipc.Shutdown(),
    ):
        assert ipc.decode_to_core(ipc.encode(sent)) == sent
    update = ipc.Update(
        np.array([7, 8], np.int64).tobytes(),
        np.array([1, 2], np.int32).tobytes(),
        np.array([-0.5, -1.0], np.float32).tobytes(),
        {1: ([4, 5], [-0.25, -0.5])},
        [ipc.PromptLogprobs(7, 1, [-1.0], [([3], [-0.5])])],
        [(7, 16)],
        [ipc.Ending(8, Finish.ERROR, "why"), ipc.Ending(9, Finish.TIMEOUT, "late", TimeoutLayer.QUEUE)],
        2,
        1,
        30,
        0,
    )
    for answer in (
        update,
        ipc.Loading(0.5, "half"),
        ipc.Ready(10, 16, 160, 4, {"dtype": "int8"}),
        ipc.LoadFailed("a", "b"),
    ):
        assert ipc.decode_from_core(ipc.encode(answer)) == answer


def test_another_version_is_refused_by_name() -> None:
    frame = ipc.encode(ipc.Shutdown())
    with pytest.raises(ipc.WrongVersion, match=f"version 9, this end speaks {ipc.VERSION}"):
        ipc.decode_to_core(bytes([9]) + frame[1:])
    with pytest.raises(ipc.WrongVersion, match="version none"):
        ipc.decode_from_core(b"")
    with pytest.raises(msgspec.ValidationError):
        ipc.decode_to_core(ipc.encode(ipc.Loading(0.0, "")))  # the wrong way round
