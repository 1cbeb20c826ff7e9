"""How much of what rounding lost a training won back, and what that decides."""

import math

import numpy as np
import pytest

from engines.protocol import ChildError
from plugins.quantization.gap import Gap, Split, perplexity, require, split
from plugins.quantization.qat_options import LEAST_TEXTS, LEAST_TOKENS, held_out, least_rows


@pytest.mark.parametrize(
    ("trained", "recovery", "passed"),
    [(35.0, 1.0, True), (38.5, 0.3, True), (38.6, 0.28, False), (40.0, 0.0, False), (45.0, -1.0, False)],
)
def test_a_share_of_the_gap_is_asked_for(trained, recovery, passed):
    gap = Gap(model=35.0, rounded=40.0, trained=trained, tokens=2000, texts=8)
    assert gap.recovery == pytest.approx(recovery)
    rule = gap.rule()
    assert (rule["metric"], rule["limit"], rule["better"]) == ("gap_recovery", 0.3, "higher")
    assert rule["passed"] is passed
    assert gap.about()["recovery"] == rule["value"]


@pytest.mark.parametrize("rounded", [35.0, 34.0, 35.05])
def test_without_a_gap_nothing_is_trained(rounded):
    with pytest.raises(ChildError, match="no gap to close") as caught:
        require(35.0, rounded)
    assert caught.value.code == "nothing_to_recover"
    require(35.0, 36.0)


def test_a_loss_that_is_no_number_is_no_perplexity():
    assert perplexity(math.log(35.0), "the model") == pytest.approx(35.0)
    for loss in (math.nan, math.inf):
        with pytest.raises(ChildError, match="the trained version"):
            perplexity(loss, "the trained version")
    assert math.isfinite(perplexity(1e6, "a broken version"))


# -- what is measured by --------------------------------------------------------------------------------------------


def texts_of(rows, rows_of_a_text):
    """Of rows that lie on their texts without a gap: numbers of the first and the last one in each."""
    edges = np.arange(rows + 1) / rows_of_a_text
    return np.stack([np.floor(edges[:-1]), np.ceil(edges[1:]) - 1], 1).astype(np.int32) + 1


def test_an_eighth_is_held_out_and_more_of_short_rows():
    assert held_out(128, 512) == 16
    assert held_out(192, 128) == 24
    assert held_out(64, 128) == 16, "2,000 tokens are 16 rows of 127"
    assert held_out(20, 128) == 10, "half at most"
    assert (least_rows(512), least_rows(32)) == (10, 132)


def test_rows_of_a_text_that_is_trained_on_are_left_out():
    found = split(texts_of(128, 0.4), 512)
    assert (found.trained, found.texts > 30) == (112, True)
    assert found.measured == 112, "a text ends where the last eighth begins"
    assert split(texts_of(128, 0.9), 512).measured == 113, "this row began in the last trained one"


def test_more_is_held_out_until_there_are_enough_texts():
    found = split(texts_of(128, 4), 512)
    assert (found.trained, found.measured, found.texts) == (96, 96, 8)
    assert split(texts_of(128, 3), 512).texts == LEAST_TEXTS


@pytest.mark.parametrize(
    ("rows", "rows_of_a_text", "tokens", "words"),
    [
        (128, 128, 512, "0 tokens of 0 texts"),  # all rows are of one text
        (128, 16, 512, "32,704 tokens of 4 texts"),
        (32, 0.2, 32, "496 tokens of"),  # what once was enough: 4 rows, 124 tokens
    ],
)
def test_too_little_that_training_does_not_see_gives_no_verdict(rows, rows_of_a_text, tokens, words):
    with pytest.raises(ChildError, match=words) as caught:
        split(texts_of(rows, rows_of_a_text), tokens)
    assert caught.value.code == "bad_calibration"
    assert f"{LEAST_TOKENS:,} of {LEAST_TEXTS} are needed" in caught.value.message


def test_what_is_held_out_is_always_enough():
    for rows in (least_rows(32), 133, 200, 320):
        found = split(texts_of(rows, 0.3), 32)
        assert (rows - found.measured) * 31 >= LEAST_TOKENS
        assert found.trained >= rows // 2
    assert isinstance(found, Split)
