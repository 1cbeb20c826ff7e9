"""How many tokens a draft model should go ahead: as many as give the most tokens per second, by what was measured.

A round with k guesses says 1 + p + … + p^k tokens, where p is how often a guess held that was reached, and takes
T + k × d seconds: T between two askings, d of one token of the draft model. Where no k beats 1 / T nothing is guessed,
but for every EXPLORE-th asking, so that it comes back.
"""

from __future__ import annotations

MOST = 8
EXPLORE = 32
FADE = 0.1
"""Weight of the newest time."""
MEMORY = 0.99
"""What is left of earlier guesses' weight when one more is judged."""


class Depth:
    """Times in seconds. Until T, d and p are known it is `first`."""

    def __init__(self, most: int = MOST, first: int = 3) -> None:
        self._most, self._first = most, min(first, most)
        self._between: float | None = None
        self._token: float | None = None
        self._held, self._judged = 0.0, 0.0
        self._asked = 0

    @property
    def rate(self) -> float:
        """How often a guess that was reached has held."""
        return self._held / self._judged if self._judged else 0.0

    def passed(self, seconds: float) -> None:
        """The target's part of a round."""
        self._between = seconds if self._between is None else self._between + FADE * (seconds - self._between)

    def drafted(self, seconds: float) -> None:
        """One pass of one token a row."""
        self._token = seconds if self._token is None else self._token + FADE * (seconds - self._token)

    def judged(self, guessed: int, held: int) -> None:
        """Of a row's guesses: those that could be compared with what was said, and the first of them that agree."""
        tried = min(held + 1, guessed)
        for _ in range(tried):
            self._held, self._judged = self._held * MEMORY, self._judged * MEMORY + 1
        self._held += held

    def choose(self) -> int:
        """For the next round; 0 = none."""
        self._asked += 1
        if self._between is None or self._token is None or not self._judged:
            return self._first
        best, gain = 0, 1 / max(self._between, 1e-9)
        tokens, reach = 1.0, 1.0
        for depth in range(1, self._most + 1):
            reach *= self.rate
            tokens += reach
            if (speed := tokens / (self._between + depth * self._token)) > gain:
                best, gain = depth, speed
        return best or int(self._asked % EXPLORE == 0)
