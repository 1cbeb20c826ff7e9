"""In how many bytes weights and cached keys and values lie, by name."""

from __future__ import annotations

from msgspec import Struct


class Scheme(Struct, kw_only=True, frozen=True):
    """linear: bytes per weight of a projection, scales included. ends: bytes per value of the embedding table and the
    head, which most recipes leave in 16 bits. compute: format of the products. head_copy: bytes per value of a second
    copy that serves as the head where the table is tied."""

    name: str
    linear: float
    ends: float
    compute: str
    norms: float = 2.0
    head_copy: float = 0.0
    source: str = ""


GROUP = 128
SCHEMES = {
    each.name: each
    for each in (
        Scheme(name="float32", linear=4, ends=4, compute="float32", norms=4, source="4 bytes per value"),
        Scheme(name="bfloat16", linear=2, ends=2, compute="bfloat16", source="2 bytes per value"),
        Scheme(name="float16", linear=2, ends=2, compute="float16", source="2 bytes per value"),
        Scheme(
            name="fp8",
            linear=1 + 4 / (128 * 128),
            ends=2,
            compute="fp8",
            source="1 byte and a 32-bit scale per 128 × 128 weights; ends in 16 bits",
        ),
        Scheme(
            name="w8a8",
            linear=1 + 4 / 4096,
            ends=2,
            compute="int8",
            source="1 byte and a 32-bit scale per output channel; ends in 16 bits",
        ),
        Scheme(
            name="w4a16",
            linear=0.5 + 2 / GROUP,
            ends=2,
            compute="bfloat16",
            source="4 bits and a 16-bit scale per 128 weights; ends in 16 bits",
        ),
        Scheme(
            name="w4a16-asym",
            linear=0.5 + 2.5 / GROUP,
            ends=2,
            compute="bfloat16",
            source="4 bits, a 16-bit scale and a 4-bit zero per 128 weights; ends in 16 bits",
        ),
        Scheme(
            name="int8",
            linear=1,
            ends=2,
            compute="int8",
            norms=1,
            head_copy=1,
            source="the native engine on a CPU: 1 byte, the table in 16 bits, a head of its own in 8",
        ),
    )
}

KV_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "fp8": 1.0}


class UnknownScheme(ValueError):
    code = "unknown_scheme"


def scheme(name: str) -> Scheme:
    """Raises UnknownScheme, which lists the names."""
    if name not in SCHEMES:
        raise UnknownScheme(f"scheme: {name!r} is not known; choose one of {', '.join(SCHEMES)}")
    return SCHEMES[name]


def kv_bytes(dtype: str, head_dim: int) -> float:
    """Bytes of one cached value. int8 has a 16-bit scale per token and head. Raises UnknownScheme."""
    if dtype == "int8":
        return 1.0 + 2.0 / head_dim
    if dtype not in KV_BYTES:
        raise UnknownScheme(f"kv_dtype: {dtype!r} is not known; choose one of {', '.join([*KV_BYTES, 'int8'])}")
    return KV_BYTES[dtype]
