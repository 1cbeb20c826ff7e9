"""What tells who somebody is, taken out of a text before it is kept: mail addresses, telephone and card numbers,
accounts, network addresses, keys and tokens. Names of people are not found: nobody should be told that they were."""

from __future__ import annotations

import re

_CARD = re.compile(r"(?<![\w.])(?:\d[ -]?){12,18}\d(?![\w])")
_PATTERNS = (
    ("<key>", re.compile(r"\b(?:ts|tsi|sk|pk|ghp|gho|xox[abp]|AKIA|eyJ)[-_.]?[A-Za-z0-9_.-]{16,}")),
    ("<key>", re.compile(r"(?i)\b(?:bearer\s+|(?:api[_-]?key|token|secret|passw(?:or)?d)\s*[:=]\s*)[^\s,;\"']{6,}")),
    ("<email>", re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")),
    ("<account>", re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b")),  # IBAN, ISO 13616
    ("<id>", re.compile(r"(?<!\d)\d{17}[\dXx](?!\d)")),  # a Chinese resident's number, GB 11643
    ("<address>", re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")),
    ("<address>", re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{1,4}:){4,7}[0-9A-Fa-f]{1,4}(?![\w:])")),
    ("<phone>", re.compile(r"(?<![\w.+])(?:\+\d{1,3}[ -]?)(?:\(?\d{1,4}\)?[ -]?){2,5}\d{2,4}(?!\w)")),
    ("<phone>", re.compile(r"(?<!\d)1[3-9]\d[ -]?\d{4}[ -]?\d{4}(?!\d)")),  # China's mobile networks
    ("<phone>", re.compile(r"(?<!\d)\(?\d{3}\)?[ -]\d{3}[ -]\d{4}(?!\d)")),  # North America
)


def masked(text: str) -> str:
    """The text with a word in the place of each find."""
    text = _CARD.sub(_card, text)
    for word, pattern in _PATTERNS:
        text = pattern.sub(word, text)
    return text


def _card(found: re.Match[str]) -> str:
    """Only what a card's check digit agrees with (Luhn, ISO/IEC 7812): other long numbers stay."""
    digits = [int(each) for each in found[0] if each.isdigit()]
    doubled = [2 * each - 9 * (each > 4) for each in digits[-2::-2]]
    return "<card>" if (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0 else found[0]
