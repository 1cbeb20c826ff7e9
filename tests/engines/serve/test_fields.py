"""What a request may say about its scheduling."""

from __future__ import annotations

from typing import Any

import pytest

from engines.native.request import Timeouts
from engines.native.serve import fields
from engines.native.serve.errors import ApiError


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (None, Timeouts()),
        (2, Timeouts(total=2.0)),
        (0.5, Timeouts(total=0.5)),
        ({}, Timeouts()),
        ({"queue": 1, "total": None}, Timeouts(queue=1.0)),
        ({"queue": 1, "first_token": 2.5, "total": 3}, Timeouts(1.0, 2.5, 3.0)),
    ],
)
def test_a_number_is_the_total_and_an_object_names_layers(given: Any, meant: Timeouts) -> None:
    assert fields.timeouts({"timeout": given}) == meant


@pytest.mark.parametrize(
    ("given", "param", "part"),
    [
        ("soon", "timeout", "a number of seconds, or an object with seconds for queue, first_token, total"),
        (True, "timeout", "a number of seconds"),
        (0, "timeout", "above 0 and at most 86400"),
        (-1, "timeout", "above 0"),
        (float("inf"), "timeout", "above 0"),
        (1e9, "timeout", "at most 86400"),
        ([1], "timeout", "a number of seconds"),
        ({"first": 1}, "timeout.first", "no layer 'first'; it has queue, first_token, total"),
        ({"queue": "1"}, "timeout.queue", "must be a number, not a string"),
        ({"first_token": 0}, "timeout.first_token", "above 0"),
    ],
)
def test_what_is_wrong_is_named(given: Any, param: str, part: str) -> None:
    with pytest.raises(ApiError) as caught:
        fields.timeouts({"timeout": given})
    assert (caught.value.status, caught.value.param) == (400, param)
    assert part in caught.value.message


def test_the_tenant_is_a_header_and_short() -> None:
    assert fields.tenant({}) == ""
    assert fields.tenant({"X-Tursiops-Team": "t" * 500}) == "t" * fields.MAX_TENANT_LENGTH
