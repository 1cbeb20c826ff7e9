"""SmoothQuant (Xiao et al., https://arxiv.org/abs/2211.10438): channels that run hot are divided by a factor that goes
into the weights, so that both sides fit into 8 bits."""

import torch


def smooth_factors(activations: torch.Tensor, weights: torch.Tensor, alpha: float) -> torch.Tensor:
    """What each input channel is divided by, and its weights multiplied by: max|x|^alpha / max|w|^(1 − alpha).

    activations: greatest |x| of each channel, float32 [in]; weights: greatest |w| of each channel over all that read
    it. alpha: share of a channel's range that moves into the weights, 0…1; 0.5 to 0.85 are usual. A channel that was
    always 0, or that no weight reads, stays as it is.
    """
    factors = activations.clamp(min=1e-5) ** alpha / weights.clamp(min=1e-5) ** (1 - alpha)
    return torch.where((activations > 0) & (weights > 0), factors, 1.0)
