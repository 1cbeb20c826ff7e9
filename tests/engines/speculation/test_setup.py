"""What the option `speculation` makes of an engine."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from engines.native.config import ConfigError
from engines.native.runner import build_runner
from engines.native.speculation import proposer
from engines.native.speculation.setup import prior_of, speculation_of
from tests.engines.speculation.test_losslessness import config_of
from tests.tiny_models import write_safetensors

pytestmark = pytest.mark.speculation


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    write_safetensors(path)
    return path


@pytest.mark.parametrize("seqs", [1, 8])
def test_passes_of_two_sizes_or_more_are_timed_however_few_requests_run_at_once(folder, seqs):
    prior = prior_of(build_runner(config_of(folder, max_num_seqs=seqs)))
    assert len(prior) >= 2
    assert prior[-1][0] > 8  # guesses make more tokens than there can be rows
    assert all(seconds > 0 for _, seconds in prior)
    assert [tokens for tokens, _ in prior] == sorted(tokens for tokens, _ in prior)


def test_names_are_checked_and_off_is_none(folder):
    runner = build_runner(config_of(folder))
    assert speculation_of(config_of(folder, speculation="off"), runner) is None
    assert speculation_of(config_of(folder, speculation="auto"), runner) is not None
    with pytest.raises(ConfigError, match=r"speculation names 'crystal'; it can name .*lookahead.*ngram"):
        speculation_of(config_of(folder, speculation="ngram+crystal"), runner)
    with pytest.raises(ConfigError, match="no draft model is given"):
        speculation_of(config_of(folder, speculation="draft"), runner)


def test_without_the_plugin_auto_goes_on_without_and_a_name_is_refused(folder, monkeypatch, caplog):
    """As if plugins/speculative had been deleted."""
    monkeypatch.setitem(proposer.BUILT_IN, "lookahead", "plugins.no_such_package:Lookahead")
    runner = build_runner(config_of(folder))
    with caplog.at_level(logging.WARNING):
        assert speculation_of(config_of(folder, speculation="auto"), runner) is None
    assert "goes on without speculation" in caplog.text
    with pytest.raises(ConfigError, match="the proposer 'lookahead' is not installed"):
        speculation_of(config_of(folder, speculation="lookahead"), runner)
