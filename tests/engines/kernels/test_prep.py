"""The prepare kernel against a loop over the rows in Python, in the interpreter."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.native.kernels import prep

pytestmark = pytest.mark.kernels


def expected(tokens, tables, rows, starts, counts, sampled, width, page):
    ids, positions, slots, seq_lens, block_tables, logits_index = [], [], [], [], [], []
    for row, start, count, sample in zip(rows, starts, counts, sampled, strict=True):
        for position in range(start, start + count):
            block = int(tables[row, position // page])
            ids.append(int(tokens[row, position]) if row >= 0 else 0)
            positions.append(position if row >= 0 else 0)
            slots.append(block * page + position % page if row >= 0 else 0)
        seq_lens.append(start + count if row >= 0 else 0)
        block_tables.append(tables[row, :width].tolist() if row >= 0 else [0] * width)
        if sample:
            logits_index.append(len(ids) - 1)
    return ids, positions, slots, seq_lens, block_tables, logits_index


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_equals_a_loop_over_the_rows(data):
    page, length, block = data.draw(st.sampled_from([(1, 12, 16), (4, 40, 16), (6, 30, 8)]))
    n = data.draw(st.integers(1, 4))
    rows = data.draw(st.permutations(range(6)))[:n]
    rows = [row if data.draw(st.integers(0, 4)) else -1 for row in rows]
    starts = [data.draw(st.integers(0, length - 1)) if row >= 0 else 0 for row in rows]
    counts = [data.draw(st.integers(1, length - s)) if r >= 0 else 1 for r, s in zip(rows, starts, strict=True)]
    sampled = [data.draw(st.booleans()) for _ in rows]
    tokens = torch.randint(0, 1000, (6, length), dtype=torch.int32)
    tables = torch.randint(1, 90, (6, -(-length // page)), dtype=torch.int32)
    width = -(-max(s + c for s, c in zip(starts, counts, strict=True)) // page)
    ranks, m = [], 0
    for sample in sampled:
        ranks.append(m if sample else -1)
        m += sample
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prep, "BLOCK", block)
        found = prep.prepare(
            tokens, tables, *(torch.tensor(x, dtype=torch.int32) for x in (rows, starts)),
            torch.tensor([0, *counts]).cumsum(0).int(), torch.tensor(ranks, dtype=torch.int32),
            total=sum(counts), logits=m, width=width, block_size=page, max_query=max(counts),
        )  # fmt: skip
    wanted = expected(tokens, tables, rows, starts, counts, sampled, width, page)
    names = ("token_ids", "positions", "slots", "seq_lens", "block_tables", "logits_index")
    for name, values in zip(names, wanted, strict=True):
        assert getattr(found, name).tolist() == values, name
