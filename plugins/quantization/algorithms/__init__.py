"""Rounding, GPTQ, AWQ and SmoothQuant in plain torch: they need tensors only, no model and no files."""
