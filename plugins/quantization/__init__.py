"""Quantization: versions of a model that are smaller and faster, made by a job. docs/quantization.md."""

from plugins.api import Plugin

plugin = Plugin(
    name="quantization",
    version="1.0",
    api=(1, 1),
    label="Quantization",
    contributes={"optimizers": {"quantization": "plugins.quantization.optimizer:Quantization"}},
)
