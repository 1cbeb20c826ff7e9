from __future__ import annotations

from engines.native.vocabulary.mine import Candidate, mine


def pieces_of(terms: list[str]) -> list[int]:
    """A token for every three characters, or for each of another script."""
    return [sum(1 if character.isascii() else 3 for character in term) // 3 + 1 for term in terms]


def found(lines: list[str], most: int = 10, min_count: int = 2, **options: int) -> list[Candidate]:
    return mine([lines], pieces_of, most=most, min_count=min_count, **options)


def test_the_best_saves_most_tokens():
    best = found(["collateral is rare"] * 3 + ["yield, the yield"] * 6)
    assert best[:2] == [Candidate("yield", 12, 2, 12), Candidate("collateral", 3, 4, 9)]


def test_a_longer_candidate_covers_the_shorter_ones_in_it():
    lines = ["the credit default swap, of"] * 5 + ["a credit default, a default"] * 1
    terms = {one.term: one.count for one in found(lines, min_count=1)}
    assert terms["credit default swap"] == 5
    assert terms["credit default"] == 1  # five of six are in the longer one
    assert "swap" not in terms


def test_a_longer_candidate_gains_only_what_the_shorter_ones_in_it_leave():
    lines = ["collateralized, "] * 50 + ["collateralized debt,"] * 5
    chosen = {one.term: one for one in found(lines)}
    assert chosen["collateralized"].count == 55
    # 7 pieces, 5 of which the shorter term's token stands for: 5 × (7 - 4 - 1)
    assert chosen["collateralized debt"].saved == 5 * (7 - 4 - 1)


def test_function_words_numbers_and_rare_runs_are_no_candidates():
    terms = {one.term for one in found(["of the balance of the year 2024 was"] * 4 + ["hapax legomenon"])}
    assert terms == {"balance of the year"}


def test_runs_of_chinese_end_at_function_characters():
    terms = {one.term for one in found(["这只股票的市盈率很高，市盈率是关键"] * 3)}
    assert "市盈率" in terms or any("市盈率" in term for term in terms)
    assert not any("的" in term or "是" in term for term in terms)


def test_memory_is_bounded_and_what_is_frequent_stays():
    lines = [f"word{number} other{number}" for number in range(500)]
    batches = [["quantitative easing"] * 20 + lines, lines, ["quantitative easing"] * 20]
    best = mine(batches, pieces_of, most=1, min_count=5, held=100)
    assert [(one.term, one.count) for one in best] == [("quantitative easing", 40)]


def test_at_most_so_many():
    assert len(found(["alpha beta, gamma delta, epsilon zeta"] * 3, most=2)) == 2
