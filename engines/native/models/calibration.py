"""The tokens on which int8 looks at activation ranges: a page of ordinary text, since random tokens excite other
channels (SmolLM2's perplexity rises by 5.3 % with them, by 1.9 % with text)."""

from __future__ import annotations

import logging

import torch

from engines.native.loader.errors import BadModel
from engines.native.loader.model_files import ModelFiles
from engines.native.loader.tokenizer import load_tokenizer

log = logging.getLogger(__name__)

TOKENS = 256
TEXT = """The harbour town of Elvik lies where the river meets the sea. In 1874 a lighthouse was built on the northern
rock, 31 metres high, and for many years its keeper, a quiet man named Anders Holm, wrote down the weather twice a day.
" The wind turned to the west at noon , " he noted on 14 March 1891 , " and two ships came in with torn sails . "
His books were found a century later, and scientists now compare them with measurements taken by satellites.

user: How do I sort a list of numbers in Python, and which method should I prefer?
assistant: Use the built-in function: `sorted(numbers)` returns a new list, while `numbers.sort()` changes the list in
place. Both take 0.5 * n * log(n) comparisons or so, and both are stable. For example:

def smallest(values, count=3):
    return sorted(values)[:count]

= = Career = =
She began to teach at the age of 22; her first album, released in 2003, sold 1,200,000 copies and was praised by critics
as " warm , honest and surprisingly modern " . 猫が窓の外を見ている。 Das Wetter bleibt morgen freundlich und mild.
"""


def calibration_ids(files: ModelFiles) -> torch.Tensor:
    """Token ids, int64 [up to 256]. A model without a usable tokenizer gets random ones."""
    try:
        tokenizer, _ = load_tokenizer(files)
    except BadModel as error:
        log.warning("int8 ranges come from random tokens, which costs accuracy: %s", error.message)
        return torch.randint(files.config.vocab, (TOKENS,), generator=torch.Generator().manual_seed(0))
    return torch.tensor(tokenizer.encode(TEXT, add_special_tokens=False).ids[:TOKENS])
