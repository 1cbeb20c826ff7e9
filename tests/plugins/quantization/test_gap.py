"""How much of what rounding lost a training won back, and what that decides."""

import math

import pytest

from engines.protocol import ChildError
from plugins.quantization.gap import Gap, perplexity, require


@pytest.mark.parametrize(
    ("trained", "recovery", "passed"),
    [(35.0, 1.0, True), (38.5, 0.3, True), (38.6, 0.28, False), (40.0, 0.0, False), (45.0, -1.0, False)],
)
def test_a_share_of_the_gap_is_asked_for(trained, recovery, passed):
    gap = Gap(model=35.0, rounded=40.0, trained=trained, tokens=100)
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
