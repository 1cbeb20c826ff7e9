"""Models that give numbers and no text: embeddings (a vector per text) and cross-encoders (a score per pair).

They share the engine's two processes, its loader and its products, and have what generation does not need of their
own: no KV cache, no rows, no sampling. One pass takes whole texts of any lengths, one after the other, unpadded.
"""
