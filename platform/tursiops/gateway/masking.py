"""What tells who somebody is, taken out of a text before it is kept: mail addresses, telephone and card numbers,
accounts, network addresses, keys and tokens. Names of people are not found: nobody should be told that they were."""

from __future__ import annotations

import re

# Words are bounded by ASCII alone: `\b` and `\w` take Chinese text for a part of the key that it touches. `\d`
# and `\s` stay Unicode's, for digits of full width. No pattern may try a long run anew from each of its characters, nor
# part one number in many ways: this runs on the gateway's event loop.
_START, _END = r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9_])"
_SECRET = r"(?:api[_-]?key|token|secret|passw(?:or)?d)"
_CARD = re.compile(r"(?<![A-Za-z_\d.])(?:\d[ -]?){12,18}\d(?![A-Za-z_\d])")
_PATTERNS = (
    ("<key>", re.compile(_START + r"(?:ts|tsi|sk|pk|ghp|gho|xox[abp]|AKIA|eyJ)[-_.]?[A-Za-z0-9_.-]{16,}")),
    (
        "<key>",
        re.compile(
            rf"(?i)(?:{_START}(?:bearer\s+|{_SECRET}\s*[:=：]\s*)|(?:密码|口令|密钥)\s*[:=：]\s*)[^\s,;\"'，；。]{{6,}}"
        ),
    ),
    ("<email>", re.compile(r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")),
    # IBAN, ISO 13616
    ("<account>", re.compile(_START + r"[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?" + _END)),
    ("<id>", re.compile(r"(?<!\d)\d{17}[\dXx](?!\d)")),  # a Chinese resident's number, GB 11643
    ("<address>", re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")),
    ("<address>", re.compile(r"(?<![A-Za-z0-9_:])(?:[0-9A-Fa-f]{1,4}:){4,7}[0-9A-Fa-f]{1,4}(?![A-Za-z0-9_:])")),
    ("<phone>", re.compile(r"(?<![A-Za-z0-9_.+])\+\d(?:\)?[ -]?\(?\d){3,25}\d" + _END)),
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
