"""Products with weights of 4 and 8 bits that are widened in registers, against plain float64, in the interpreter."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.kernels import packed, upcast
from engines.native.kernels.linear import LEAST_INPUTS, MOST_SPLITS, SHARED
from engines.native.kernels.packed import FORMS
from tests.engines.kernels import reference
from tests.engines.kernels.reference import relative_error

pytestmark = pytest.mark.kernels

CASES = [
    # form, group, zeros, height, inputs
    ("int4", 0, False, 1, 256),
    ("int4", 32, False, 1, 256),
    ("int4", 64, True, 1, 200),
    ("int4", 128, True, 1, 384),
    ("int4", 192, False, 1, 576),
    ("int4", 256, False, 1, 512),
    ("int8", 0, False, 1, 200),
    ("int8", 64, False, 1, 256),
    ("fp8", 0, False, 1, 256),
    ("fp8", 128, False, 128, 384),
    ("int4", 64, False, 1, 512),
    ("int4", 128, True, 1, 512),
]


@pytest.mark.parametrize(("form", "group", "zeros", "height", "inputs"), CASES)
def test_products(form, group, zeros, height, inputs):
    torch.manual_seed(inputs)
    outputs = 136
    weight, matrix = reference.packed(form, outputs, inputs, group, zeros=zeros, height=height)
    x, bias = torch.randn(3, inputs), torch.randn(outputs)
    wanted = x.double() @ matrix.double().t() + bias
    whole = upcast.upcast_linear(x, weight, bias, splits=False)
    assert relative_error(whole, wanted) < 1e-5
    summands = upcast.upcast_linear(x, weight, bias, splits=True)
    assert relative_error(summands.sum(0) if summands.dim() == 3 else summands, wanted) < 1e-5
    wanted = reference.silu_mul(x.double() @ matrix.double().t() + bias)
    assert relative_error(upcast.upcast_gated(x, weight, bias), wanted) < 1e-5
    widened = upcast.widen(weight, torch.full((outputs, inputs), torch.nan, dtype=torch.float16))
    assert relative_error(widened, matrix) < 1e-3


def test_every_value_of_every_form_is_exact():
    """As the widened copy in float32 has it, all 16 or 256 of them, fp8 with its denormals."""
    one = torch.ones(1, 1)
    for form in FORMS:
        if form == "int4":
            values = torch.arange(16, dtype=torch.uint8)
            wanted = values.float() - 8
        else:
            values = torch.arange(256, dtype=torch.uint8).view(torch.int8 if form == "int8" else torch.float8_e4m3fn)
            values = values[~values.float().isnan()]
            wanted = values.float()
        weight = packed.Packed(form, packed.pack(values[None], form), one, None, len(values))
        assert torch.equal(upcast.widen(weight, torch.empty(1, len(values))), wanted[None])


def test_words_as_bytes_are_the_matrix_in_another_order():
    for form, dtype in (("int8", torch.int8), ("fp8", torch.float8_e4m3fn)):
        values = torch.randint(-100, 100, (3, 300)).to(dtype)
        weight = packed.Packed(form, packed.pack(values, form), torch.ones(1, 3), None, 300)
        assert weight.padded == 384
        order = packed.order(384)
        assert torch.equal(order.sort().values, torch.arange(384))
        padded = torch.nn.functional.pad(values.float(), (0, 84))
        assert torch.equal(weight.bytes.float(), padded[:, order])


@settings(max_examples=200, deadline=None)
@given(
    form=st.sampled_from(sorted(FORMS)),
    rows=st.integers(1, 600),
    outputs=st.integers(1, 200_000),
    inputs=st.integers(1, 20_000),
    group=st.sampled_from([0, 32, 64, 128]),
    gated=st.booleans(),
)
def test_a_plan_covers_all_inputs_and_fits_the_device(form, rows, outputs, inputs, group, gated):
    block = packed.part_of(form, inputs, group) * 16 // FORMS[form]
    made = upcast.plan(
        form=form, rows=rows, outputs=outputs, inputs=inputs, block=block, gated=gated, processors=132
    )  # fmt: skip
    assert made.block_m >= max(16, min(rows, 64))
    assert made.block_k % block == 0
    assert 1 <= made.splits <= MOST_SPLITS
    assert made.splits * made.steps * made.block_k >= inputs
    assert made.splits == 1 or inputs >= made.splits * LEAST_INPUTS
    assert made.stages * made.block_k * (made.block_n * FORMS[form] // 8 + made.block_m * 2) <= SHARED


@pytest.mark.parametrize(("optin", "planned"), [(99, 99), (163, 99), (227, 227)])
def test_plans_keep_to_the_shared_memory_that_a_gpu_has_not_to_its_age(monkeypatch, optin, planned):
    properties = SimpleNamespace(shared_memory_per_block_optin=optin * 1024)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert upcast.shared_of.__wrapped__(torch.device("cuda", 0)) == planned * 1024
    assert upcast.shared_of(torch.device("cpu")) == upcast.SHARED_BEFORE


def test_a_row_is_added_up_alike_whatever_stands_beside_it():
    for form in FORMS:
        plans = [
            upcast.plan(form=form, rows=n, outputs=4096, inputs=4096, block=128, gated=False, processors=132)
            for n in (1, 2, 16)
        ]
        assert len({(made.splits, made.steps) for made in plans}) == 1
