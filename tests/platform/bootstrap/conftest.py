import pytest
from tursiops.progress import Step


@pytest.fixture
def step(tmp_path):
    """A step of the set-up, with its log."""
    step = Step("environment", tmp_path, lambda _: None)
    step.log.write_text("")
    return step
