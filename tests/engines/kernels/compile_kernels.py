"""Compile what the wrappers launch, for GPUs that are not here, and print the resources of each kernel as JSON.

`python -m tests.engines.kernels.compile_kernels 80 90`; must run without TRITON_INTERPRET. Each kernel object of
`engines.native.kernels` is replaced by one that compiles the launch instead of running it, so that constants, argument
types and options are those of the real call.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.tools.tensor_descriptor import TensorDescriptor

from engines.native.kernels import (
    attention,
    fused,
    int8_head,
    linear,
    masks,
    prep,
    quantize,
    quantized_keys,
    quantized_pages,
    quantized_write,
    sampling,
    scaled,
    upcast,
    verify,
)
from engines.native.kernels.attention_plan import Device, Workspace, fixed_plan, plan
from engines.native.quantized_kv import Fp8Pool, Int8Pool, QuantizedPool
from tests.engines.kernels import reference

POINTERS = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int8: "*i8",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.bool: "*i1",
    torch.int16: "*i16",
    torch.uint8: "*u8",
    torch.float8_e4m3fn: "*fp8e4nv",
}
MODULES = (
    attention, fused, int8_head, linear, masks, prep, quantize, quantized_pages, quantized_write, sampling, scaled,
    upcast, verify,
)  # fmt: skip
OPTIONS = ("num_warps", "num_stages")
CUOBJDUMP = os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "bin", "cuobjdump")


class Compiler:
    """Stands for a kernel: `kernel[grid](…)` compiles it for `capability` and reports instead of launching."""

    def __init__(self, kernel: Any, capability: int, report: Callable[[dict[str, Any]], None]) -> None:
        self.kernel, self.capability, self.report = kernel, capability, report

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return self._compile

    def _compile(self, *args: Any, **kwargs: Any) -> None:
        options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
        values = dict(zip(self.kernel.arg_names, args, strict=False)) | kwargs
        signature, constants, attributes = {}, {}, {}
        for index, parameter in enumerate(self.kernel.params):
            value = values[parameter.name]
            if parameter.is_constexpr or value is None:
                signature[parameter.name], constants[parameter.name] = "constexpr", value
            elif isinstance(value, torch.Tensor):
                signature[parameter.name] = POINTERS[value.dtype]
                if not parameter.do_not_specialize_on_alignment:
                    attributes[index,] = [["tt.divisibility", 16]]
            elif isinstance(value, TensorDescriptor):
                kind = POINTERS[value.base.dtype].removeprefix("*")
                signature[parameter.name] = f"tensordesc<{kind}{list(value.block_shape)}>"
            elif isinstance(value, int):
                signature[parameter.name] = "i32" if abs(value) < 2**31 else "i64"
                if value % 16 == 0 and not parameter.do_not_specialize:
                    attributes[index,] = [["tt.divisibility", 16]]
            else:
                signature[parameter.name] = "fp32"
        source = ASTSource(self.kernel, signature=signature, constexprs=constants, attrs=attributes)
        compiled = triton.compile(source, target=GPUTarget("cuda", self.capability, 32), options=options)
        found = resources(compiled.asm["cubin"])
        self.report({"kernel": self.kernel.__name__, "shared": compiled.metadata.shared, **found})


def resources(cubin: bytes) -> dict[str, int]:
    """Registers per thread, and bytes of stack (spilled registers live there) and local memory."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run(
            [CUOBJDUMP, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        )
    found = dict(re.findall(r"\b(REG|STACK|LOCAL):(\d+)", text.stdout))
    return {name.lower(): int(found[name]) for name in ("REG", "STACK", "LOCAL")}


@contextmanager
def compiling(module: Any, capability: int, report: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    kernels = {name: kernel for name, kernel in vars(module).items() if name.endswith("_kernel")}
    for name, kernel in kernels.items():
        setattr(module, name, Compiler(kernel, capability, report))
    try:
        yield
    finally:
        for name, kernel in kernels.items():
            setattr(module, name, kernel)


def launch_attention(capability: int, head_dim: int, query: int, window: int, dtype: torch.dtype) -> None:
    case = reference.paged_case([query], [query + 64], heads=8, kv_heads=2, head_dim=head_dim, page=16, dtype=dtype)
    launch = plan(
        tokens=query, rows=1, group=4, kv_heads=2, head_dim=head_dim, max_query=query, max_seq=8192, window=window,
        dtype=dtype, device=Device(132, (capability // 10, capability % 10)),
    )  # fmt: skip
    attention.paged_attention(
        case.q, case.k_cache, case.v_cache, torch.empty_like(case.q), case.cu_query, case.seq_lens, case.block_tables,
        scale=1.0, window=window, launch=launch, workspace=Workspace(case.q.device),
    )  # fmt: skip


def launch_fixed(capability: int) -> None:
    """Strict mode: attention in one tile for all, and its products."""
    dtype, device = torch.bfloat16, Device(132, (capability // 10, capability % 10))
    case = reference.paged_case([9], [70], heads=8, kv_heads=2, head_dim=128, page=16, dtype=dtype)
    attention.paged_attention(
        case.q, case.k_cache, case.v_cache, torch.empty_like(case.q), case.cu_query, case.seq_lens, case.block_tables,
        scale=1.0, window=0, launch=fixed_plan(tokens=9, rows=1, group=4, head_dim=128, dtype=dtype, device=device),
        workspace=Workspace(case.q.device),
    )  # fmt: skip
    for kind in (dtype, torch.float32):
        linear.fixed_linear(torch.zeros(3, 256, dtype=kind), torch.zeros(512, 256, dtype=kind), None)


def launch_trees(capability: int) -> None:
    """8 and 32 tokens of a row, and what stands around attention; 8 over pools in fp8."""
    dtype, device = torch.bfloat16, Device(132, (capability // 10, capability % 10))
    fp8 = quantized_keys.FP8_UNIT if capability >= 89 else "fp8"
    for query, pairs in ((8, False), (32, False), (8, True)):
        case = reference.paged_case([query], [query + 64], heads=8, kv_heads=2, head_dim=128, page=16, dtype=dtype)
        keys: Any = case.k_cache
        if pairs:
            keys = Fp8Pool(torch.zeros(case.k_cache.shape, dtype=torch.int8), torch.ones(2), dtype)
        launch = plan(
            tokens=query, rows=1, group=4, kv_heads=2, head_dim=128, max_query=query, max_seq=8192, window=0,
            dtype=dtype, device=device, pairs=pairs, tree=True,
        )  # fmt: skip
        with patch.object(attention, "form", lambda *_: fp8):
            attention.paged_attention(
                case.q, keys, keys, torch.empty_like(case.q), case.cu_query, case.seq_lens, case.block_tables,
                scale=1.0, window=0, launch=launch, workspace=Workspace(case.q.device),
                ancestors=torch.zeros(query, dtype=torch.int32),
            )  # fmt: skip
    rows, tables = torch.zeros(4, 64, dtype=torch.int32), torch.zeros(4, 4, dtype=torch.int32)
    sent, said = torch.zeros(2, 17, dtype=torch.int32), torch.zeros(2, 9, dtype=torch.int32)
    verify.prepare_trees(rows, tables, sent, width=4, block_size=16)
    paths = verify.accept(sent, torch.zeros(16, dtype=torch.int32), rows, rows[:, 0].contiguous(), said)
    scales = torch.zeros(9, 2, 16)
    for plane in (torch.zeros(9, 2, 16, 128, dtype=dtype), torch.zeros(9, 2, 16, 128, dtype=torch.int8), scales):
        verify.compact(verify.Planes.of([plane]), sent, said, paths, tables)


def launch_quantized_kv(capability: int, head_dim: int, query: int) -> None:
    """A decode, chunk or long chunk over pools in 8 bits, in each form that the GPU may have."""
    dtype, fp8 = torch.bfloat16, quantized_keys.FP8_UNIT if capability >= 89 else "fp8"
    case = reference.paged_case([query], [query + 64], heads=8, kv_heads=2, head_dim=head_dim, page=16, dtype=dtype)
    values = torch.zeros(case.k_cache.shape, dtype=torch.int8)
    pools: list[tuple[str, QuantizedPool]] = [
        (fp8, Fp8Pool(values, torch.ones(2), dtype)),
        ("int8", Int8Pool(values, torch.ones(case.k_cache.shape[:3]), dtype)),
    ]
    launch = plan(
        tokens=query, rows=1, group=4, kv_heads=2, head_dim=head_dim, max_query=query, max_seq=8192, window=0,
        dtype=dtype, device=Device(132, (capability // 10, capability % 10)), pairs=True,
    )  # fmt: skip
    for form, pool in pools:
        with (
            patch.object(attention, "form", lambda *_, form=form: form),
            patch.object(quantized_pages, "form", lambda *_, form=form: form),
        ):
            attention.paged_attention(
                case.q, pool, pool, torch.empty_like(case.q), case.cu_query, case.seq_lens, case.block_tables,
                scale=1.0, window=0, launch=launch, workspace=Workspace(case.q.device),
            )  # fmt: skip
            if query == 1:
                quantized_pages.widen_pages(pool, pool, case.seq_lens, case.block_tables, 4)
                rope = reference.rope_case(2, 8, 2, head_dim, 16, (False, False), dtype)
                quantized_write.quantized_rope_and_cache(*rope[:4], pool, pool, *rope[6:], 1e-5)


def launch_rest(dtype: torch.dtype) -> None:
    x = torch.zeros(2, 576, dtype=dtype)
    fused.rms_norm(x, x[0], 1e-5)
    fused.add_rms_norm(x, x.clone(), x[0], 1e-5)
    fused.silu_mul(x)
    for norms in ((False, False), (True, True)):
        fused.rope_and_cache(*reference.rope_case(2, 9, 3, 64, 16, norms, dtype), 1e-5)
    for tokens in (2, 64):
        masks.mask_logits(
            torch.zeros(tokens, 256), torch.zeros(1, dtype=torch.int64), torch.zeros(1, 8, dtype=torch.int32)
        )
        int8_head.int8_head(x[:1].repeat(tokens, 1), torch.zeros(256, 576, dtype=torch.int8), torch.zeros(256))
    ints = torch.zeros(2, dtype=torch.int32)
    prep.prepare(
        torch.zeros(4, 64, dtype=torch.int32), torch.zeros(4, 4, dtype=torch.int32), ints, ints,
        torch.zeros(3, dtype=torch.int32), ints, total=2, logits=2, width=4, block_size=16, max_query=1,
    )  # fmt: skip
    vocab = 49_152  # SmolLM2's; as every common vocabulary a multiple of 16, without which the search spills a little
    table = reference.sampling_table(2, vocab)
    for on in (False, True):
        sampling.sample(
            torch.zeros(2, vocab, dtype=dtype), ints, torch.zeros(2, dtype=torch.int64), table,
            penalties=on, bias=on, filters=on,
        )  # fmt: skip


def launch_linear(dtype: torch.dtype) -> None:
    for rows in (2, 32, 64, 128):
        weight = torch.zeros(1024, 256, dtype=dtype)
        linear.linear(torch.zeros(rows, 256, dtype=dtype), weight, weight[:, 0].contiguous(), splits=True)
        linear.gated_linear(torch.zeros(rows, 256, dtype=dtype), weight, None)


def launch_quantized(capability: int) -> None:
    """fp8 weights are widened by bit operations everywhere; what makes or multiplies fp8 needs sm_89."""
    forms = {"int8": torch.int8} | ({"fp8": torch.float8_e4m3fn} if capability >= 89 else {})
    for dtype in (torch.bfloat16, torch.float16):
        for form, group, rows in (("int4", 128, 1), ("int4", 32, 64), ("int4", 0, 2), ("int8", 0, 2), ("fp8", 0, 64)):
            for zeros in (False, True) if form == "int4" and group == 128 and dtype == torch.bfloat16 else (False,):
                weight = reference.packed(form, 2048, 1024, group, zeros=zeros)[0]
                x = torch.zeros(rows, 1024, dtype=dtype)
                upcast.upcast_linear(x, weight, None, splits=True)
                upcast.upcast_gated(x, weight, None)
                upcast.widen(weight, torch.zeros(2048, 1024, dtype=dtype))
    for form, values in forms.items():
        x = torch.zeros(2, 14_336, dtype=torch.bfloat16)
        quantize.silu_mul_quantize(x, values, quantize.TOKEN)
        quantize.add_rms_norm_quantize(x[:, :4096], x[:, :4096], x[0], 1e-5, values, quantize.TOKEN)
        for kind in (quantize.TOKEN, quantize.GROUPS):
            weight = reference.packed(form, 2048, 1024, 128 if kind == quantize.GROUPS else 0, height=128)[0]
            for count in (64, 128):
                rows = quantize.quantize(torch.zeros(count, 1024, dtype=torch.bfloat16), values, kind)
                scaled.scaled_linear(rows, weight, None, splits=True)
                scaled.scaled_gated(rows, weight, None)
            if capability >= 90 and kind == quantize.TOKEN:
                scaled.scaled_product(rows, weight, None)


def main(capabilities: list[int]) -> None:
    for capability in capabilities:
        known: dict[str, Any] = {"capability": capability}

        def report(found: dict[str, Any], known: dict[str, Any] = known) -> None:
            print(json.dumps(known | found), flush=True)

        with ExitStack() as stack:
            for module in MODULES:
                stack.enter_context(compiling(module, capability, report))
                if hasattr(module, "dependent"):
                    stack.enter_context(patch.object(module, "dependent", lambda _, at=capability: at >= 90))
            launch_rest(torch.bfloat16)
            if capability // 10 == 9:  # elsewhere products are left to cuBLAS
                launch_linear(torch.bfloat16)
            launch_fixed(capability)
            launch_quantized(capability)
            known["tree"] = True
            launch_trees(capability)
            del known["tree"]
            for known["head_dim"] in (64, 128):
                for known["kind"], query in (("decode", 1), ("chunk", 8), ("prefill", 200)):
                    known["pairs"] = False
                    launch_attention(capability, known["head_dim"], query, 0, torch.bfloat16)
                    known["pairs"] = True
                    launch_quantized_kv(capability, known["head_dim"], query)


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]])
