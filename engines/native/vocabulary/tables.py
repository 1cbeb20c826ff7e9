"""Rows of the embedding and the head for new tokens: each the mean of the rows of the pieces that it stands for.

Then a new token's logit is the mean of its pieces' logits, and so never above the greatest of them: a greedy answer
does not take it, whatever the prompt. Sampled, it is at most as likely as the geometric mean of its pieces. Nothing
needs to be masked, and training can raise it from there. (The mean of all rows: Hewitt, "Initializing New Word
Embeddings for Pretrained Language Models", 2021; of the pieces: Gee et al., "Fast Vocabulary Transfer for Language
Model Compression", EMNLP 2022.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def grown(table: torch.Tensor, first: int, pieces: Sequence[Sequence[int]], rows: int) -> torch.Tensor:
    """table [old rows, hidden] → [rows, hidden] of the same dtype. Row first + i is the mean of the rows pieces[i].

    Rows below `first` are copied bit for bit. Rows that no id uses, where the table grows, are the mean of all rows:
    their logit is the mean of all logits. Rows that the old table had beyond its ids, and that nothing needs, stay.
    """
    made = torch.empty(rows, table.shape[1], dtype=table.dtype)
    made[: min(len(table), rows)] = table[:rows]
    if rows > len(table):
        made[len(table) :] = table[:first].double().mean(0).to(table.dtype)
    for index, ids in enumerate(pieces):
        made[first + index] = table[list(ids)].double().mean(0).to(table.dtype)
    return made
