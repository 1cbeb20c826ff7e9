"""The stateless noise: known values, independence from the batch, and the distribution that it must have."""

import math

import torch

from engines.native.sample.noise import gumbel


def _reference(seed: int, position: int, token: int) -> float:
    """The definition in plain Python integers and float64."""

    def mix(x: int) -> int:
        x ^= x >> 16
        x = x * 0x7FEB352D % 2**32
        x ^= x >> 15
        x = x * 0x846CA68B % 2**32
        return x ^ (x >> 16)

    low, high = seed % 2**32, (seed >> 32) % 2**32
    k0 = mix(mix(mix((low + 0x9E3779B9) % 2**32) ^ high) ^ position)
    k1 = mix(mix(mix((high + 0x85EBCA6B) % 2**32) ^ position) ^ low)
    hashed = mix((mix(token ^ k0) + k1) % 2**32)
    return -math.log(-math.log1p(-min((hashed + 0.5) / 2**32, 1 - 2**-24)))


def test_equals_the_definition_in_python_integers():
    generator = torch.Generator().manual_seed(3)
    seeds = torch.randint(-(2**63), 2**63 - 1, (16,), generator=generator)
    positions = torch.randint(0, 2**20, (16,), generator=generator)
    tokens = torch.randint(0, 200_000, (64,), generator=generator)
    noise = gumbel(seeds, positions, tokens)
    wanted = [[_reference(int(s), int(p), int(t)) for t in tokens] for s, p in zip(seeds, positions, strict=True)]
    torch.testing.assert_close(noise, torch.tensor(wanted), rtol=2e-5, atol=2e-5)


def test_does_not_depend_on_the_batch():
    seeds, positions = torch.tensor([1, 2, -7]), torch.tensor([5, 6, 7])
    together = gumbel(seeds, positions, torch.arange(100))
    for i in range(3):
        alone = gumbel(seeds[i : i + 1], positions[i : i + 1], torch.tensor([41]))
        assert alone[0, 0] == together[i, 41]


def test_neighbouring_seeds_positions_and_tokens_are_uncorrelated():
    n = 2048
    base = gumbel(torch.tensor([12345]), torch.tensor([100]), torch.arange(n))[0]
    others = {
        "seed": gumbel(torch.tensor([12346]), torch.tensor([100]), torch.arange(n))[0],
        "high half of the seed": gumbel(torch.tensor([12345 + 2**32]), torch.tensor([100]), torch.arange(n))[0],
        "position": gumbel(torch.tensor([12345]), torch.tensor([101]), torch.arange(n))[0],
        "token": gumbel(torch.tensor([12345]), torch.tensor([100]), torch.arange(1, n + 1))[0],
    }
    for name, other in others.items():
        r = torch.corrcoef(torch.stack([base, other]))[0, 1].item()
        assert abs(r) < 4.5 / math.sqrt(n), f"{name}: correlation {r:.3f}"


def test_moments_are_those_of_the_gumbel_distribution():
    noise = gumbel(torch.arange(50), torch.arange(50) * 3, torch.arange(20_000)).double()
    assert torch.isfinite(noise).all()
    assert abs(noise.mean().item() - 0.57721566) < 4.5 * 1.2825 / 1000
    assert abs(noise.var().item() - math.pi**2 / 6) < 0.02


def test_argmax_draws_the_softmax():
    """Chi-square of 40,000 draws over 8 tokens, one draw per position: 7 degrees of freedom, p = 1e-6 at 41.8."""
    logits = torch.tensor([2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0, -3.0])
    n = 40_000
    drawn = (gumbel(torch.full((n,), 99), torch.arange(n), torch.arange(8)) + logits).argmax(-1)
    counts = torch.bincount(drawn, minlength=8).double()
    expected = torch.softmax(logits.double(), -1) * n
    assert ((counts - expected) ** 2 / expected).sum().item() < 41.8
