"""What tensor parallelism asks of a quantized model, told at plan time with layer, sizes and a proposal that holds."""

from __future__ import annotations

from engines.api import ModelShape, shard_refusals

QWEN72B = ModelShape("qwen2", 80, 8192, 29568, 64, 8, 128, 152_064, 32_768, 72_706_203_648)
LLAMA8B = ModelShape("llama", 32, 4096, 14336, 32, 8, 128, 128_256, 131_072, 8_030_261_248)
SMOLLM2 = ModelShape("llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, 134_515_008, True)


def test_vllm_13640_is_refused_with_what_would_do():
    [sentence] = shard_refusals(QWEN72B, 2, group=128)
    assert sentence == (
        "down_proj has 29,568 inputs: split over 2 GPUs, in/TP = 14,784, which groups of 128 don't divide; quantize in "
        "groups of 64, serve it on 1 GPU, or pad the layer to 29,696."
    )
    assert shard_refusals(QWEN72B, 2, group=64) == []  # the proposals hold
    assert shard_refusals(QWEN72B, 1, group=128) == []
    assert 29_696 % (2 * 128) == 0


def test_what_splits_is_not_refused():
    for ranks in (1, 2, 4, 8):
        assert shard_refusals(LLAMA8B, ranks, group=128) == []
        assert shard_refusals(LLAMA8B, ranks) == []
    assert shard_refusals(LLAMA8B, 2, block=(128, 128)) == []


def test_blocks_bind_outputs_too():
    found = shard_refusals(QWEN72B, 2, block=(128, 128))
    assert [sentence.split(" ha")[0] for sentence in found] == ["down_proj", "gate_proj and up_proj"]
    assert all("blocks of 128 don't divide; take a scheme with one scale per channel" in each for each in found)


def test_heads_and_tiles():
    assert shard_refusals(SMOLLM2, 2, group=32) == ["9 attention heads don't split over 2 GPUs; use 1 GPU."]
    assert shard_refusals(SMOLLM2, 3, group=64) == []
    odd = ModelShape("llama", 2, 64, 24, 4, 4, 16, 256, 128, 100_000)
    assert shard_refusals(odd, 2) == [
        "down_proj has 24 inputs: split over 2 GPUs, in/TP = 12, which is no multiple of 16, as tensor cores need it; "
        "pad the layer to 32.",
        "gate_proj and up_proj have 24 outputs: split over 2 GPUs, out/TP = 12, which is no multiple of 16, as tensor "
        "cores need it; pad the layer to 32.",
    ]
