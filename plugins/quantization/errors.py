"""How a quantize job of the built-in back end ends when it can't go on."""


class QuantizationFailed(Exception):
    """What can't be quantized: a sentence with the layer or field, the reason, and what to do."""
