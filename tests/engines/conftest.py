"""What must be settled before torch and Triton are imported."""

import os

import engines.native  # isort: skip # noqa: F401  OpenMP threads wait without spinning, see there

import torch

# Triton decides at import whether a kernel is compiled or interpreted; without a GPU the tests interpret.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
