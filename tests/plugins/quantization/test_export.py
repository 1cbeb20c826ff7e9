"""quantization_config as it is written: read back by our own reader, it says what was made of each module."""

from __future__ import annotations

import pytest

from engines.native.quant.config import quant_config
from engines.native.quant.scheme import LinearScheme, WeightScheme
from plugins.quantization.export import quantization_config

MODULES = [f"model.layers.{n}.mlp.{part}" for n in range(2) for part in ("up_proj", "down_proj")]
TABLE = "model.embed_tokens"
INT8 = LinearScheme(WeightScheme("int", 8, "channel"))
INT4 = LinearScheme(WeightScheme("int", 4, "group", 32))


@pytest.mark.parametrize(
    "schemes",
    [
        dict.fromkeys(MODULES, INT8),
        dict.fromkeys([*MODULES, TABLE], INT8),
        dict.fromkeys([*MODULES[1:], TABLE], INT8),
        {**dict.fromkeys(MODULES, INT4), TABLE: INT8},
        {**dict.fromkeys(MODULES[:2], INT4), **dict.fromkeys([*MODULES[2:], TABLE], INT8)},
        {TABLE: INT8},
    ],
    ids=["layers", "with the table", "one kept", "table apart", "mixed", "table alone"],
)
def test_each_module_reads_back_as_it_was_made(schemes: dict[str, LinearScheme]) -> None:
    read = quant_config({"quantization_config": quantization_config(schemes, MODULES, None)})
    assert read is not None
    assert {name: read.of(name) for name in [*MODULES, TABLE]} == {
        name: schemes.get(name) for name in [*MODULES, TABLE]
    }
    assert read.of("lm_head") is None
