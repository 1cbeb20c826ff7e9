"""Triton decides at import whether a kernel is compiled or interpreted; without a GPU the tests interpret."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
