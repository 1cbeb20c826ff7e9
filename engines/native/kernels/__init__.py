"""Triton kernels of the engine. Each has a plain torch reference in tests/engines/kernels."""

import triton

INTERPRETED: bool = bool(triton.knobs.runtime.interpret)
"""True where kernels run in Triton's interpreter on the CPU (TRITON_INTERPRET=1 before the first import: tests).
The interpreter computes bfloat16 wrongly, so kernels convert loaded values to float32 under it."""
