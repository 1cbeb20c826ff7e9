"""How long a step takes, learnt from those that were: least squares over what a step does.

    seconds ≈ a + b × decode rows + c × keys that they read + d × prefill tokens + e × keys that these read

Each observation counts by its relative error, so that small steps are met as well as large ones. Newer ones count more,
and steps with and without prefill fade apart: an hour of decoding does not make what prefill costs forgotten. No factor
is below 0 (one that comes out so is left out, and the others fitted again). A step that takes several times what was
expected, as the first of its kind does, counts as OUTLIER times that; BELIEVED in a row are news, and all before them
is forgotten.

Plain Python on five numbers: a few microseconds a step, some tens where it is solved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FADE = 0.98
"""What an observation weighs when the next of its kind comes: about the last fifty count."""
OUTLIER = 3.0
TRUSTED = 8
"""Observations after which an outlier is told from news."""
BELIEVED = 5
"""Outliers in a row that are none."""
EAGER, RELAXED = 32, 4
"""Solved with each observation until there were so many of both kinds, then every fourth time."""
RIDGE = 1e-6
"""Of each factor's own weight: factors that the observations do not tell apart share the cost."""
LEAST_S = 1e-6
_UNITS = (1.0, 16.0, 16_384.0, 256.0, 262_144.0)
"""Typical sizes, so that the sums are of like magnitude."""
_SIZE = len(_UNITS)


@dataclass(frozen=True, slots=True)
class Load:
    """What a step does. decode_keys: keys that its decodes read in one layer; prefill_keys: query-key pairs of its
    chunks, each token with all before it and itself."""

    decodes: int = 0
    decode_keys: int = 0
    prefill: int = 0
    prefill_keys: int = 0

    def scaled(self) -> tuple[float, ...]:
        values = (1, self.decodes, self.decode_keys, self.prefill, self.prefill_keys)
        return tuple(value / unit for value, unit in zip(values, _UNITS, strict=True))


def chunk(start: int, count: int) -> Load:
    """`count` tokens of a prompt after the first `start`."""
    return Load(prefill=count, prefill_keys=count * start + count * (count + 1) // 2)


class _Sums:
    """Normal equations of one kind of step: the lower triangle, the right side."""

    def __init__(self) -> None:
        self.matrix = [[0.0] * _SIZE for _ in range(_SIZE)]
        self.right = [0.0] * _SIZE

    def add(self, features: tuple[float, ...], seconds: float, usual: float) -> None:
        """usual: the time that errors are measured by."""
        weight = 1.0 / (usual * usual)
        for i, value in enumerate(features):
            row, scale = self.matrix[i], weight * value
            for j in range(i + 1):
                row[j] = row[j] * FADE + scale * features[j]
            self.right[i] = self.right[i] * FADE + scale * seconds


class StepTimes:
    def __init__(self) -> None:
        self._factors = [0.0] * _SIZE
        self._unread = 0  # observations since it was solved
        self._forget()

    def _forget(self) -> None:
        self._sums = {False: _Sums(), True: _Sums()}  # by whether there was prefill
        self._seen = {False: 0, True: 0}
        self._outliers = 0  # in a row

    @property
    def knows_prefill(self) -> bool:
        return self._seen[True] > 0

    def observe(self, load: Load, seconds: float) -> None:
        """A step with this load took so long."""
        kind = load.prefill > 0
        usual = seconds = max(seconds, LEAST_S)
        if self._seen[kind] >= TRUSTED:
            usual = max(self.seconds(load), LEAST_S)
            self._outliers = self._outliers + 1 if seconds > OUTLIER * usual else 0
            if self._outliers == BELIEVED:  # another machine, as far as we can tell
                self._forget()
                usual = seconds
            seconds = min(seconds, OUTLIER * usual)
        self._seen[kind] += 1
        self._sums[kind].add(load.scaled(), seconds, usual)
        self._unread += 1

    def seconds(self, load: Load) -> float:
        """Expected; 0 before anything was observed."""
        factors = self._fitted()
        return sum(factor * value for factor, value in zip(factors, load.scaled(), strict=True))

    def tokens(self, start: int, room: float, most: int) -> int:
        """How many tokens of a prompt, after its first `start`, add at most `room` seconds to a step; up to `most`."""
        factors = self._fitted()
        pair = factors[4] / _UNITS[4]
        linear = factors[3] / _UNITS[3] + pair * (start + 0.5)
        square = pair / 2
        if room <= 0:
            return 0
        if square * most * most + linear * most <= room:
            return most
        if square <= 1e-9 * linear / most:
            return int(room / linear)
        return int((math.sqrt(linear * linear + 4 * square * room) - linear) / (2 * square))

    def added(self, start: int, count: int) -> float:
        """Seconds that a chunk adds to a step."""
        factors, scaled = self._fitted(), chunk(start, count).scaled()
        return factors[3] * scaled[3] + factors[4] * scaled[4]

    def _fitted(self) -> list[float]:
        if self._unread >= (1 if min(self._seen.values()) < EAGER else RELAXED):
            self._unread = 0
            self._factors = self._solve()
        return self._factors

    def _solve(self) -> list[float]:
        """The least squares without negative factors, by leaving out the most negative one until there is none."""
        one, two = self._sums[False], self._sums[True]
        matrix = [[a + b for a, b in zip(x, y, strict=True)] for x, y in zip(one.matrix, two.matrix, strict=True)]
        right = [a + b for a, b in zip(one.right, two.right, strict=True)]
        used = [index for index in range(_SIZE) if matrix[index][index] > 0]
        while used:
            found = _cholesky(matrix, right, used)
            worst = min(range(len(used)), key=found.__getitem__)
            if found[worst] >= 0:
                factors = [0.0] * _SIZE
                for place, index in enumerate(used):
                    factors[index] = found[place]
                return factors
            del used[worst]
        return [0.0] * _SIZE


def _cholesky(matrix: list[list[float]], right: list[float], used: list[int]) -> list[float]:
    """x of M x = r over the rows and columns `used` of the lower triangle `matrix`, its diagonal raised by RIDGE."""
    size = len(used)
    lower = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            total = matrix[used[i]][used[j]] - sum(lower[i][k] * lower[j][k] for k in range(j))
            if i == j:
                ridge = RIDGE * matrix[used[i]][used[i]]
                lower[i][i] = math.sqrt(max(total, 0.0) + ridge)
            else:
                lower[i][j] = total / lower[j][j]
    solution = [right[index] for index in used]
    for i in range(size):
        solution[i] = (solution[i] - sum(lower[i][k] * solution[k] for k in range(i))) / lower[i][i]
    for i in reversed(range(size)):
        solution[i] = (solution[i] - sum(lower[k][i] * solution[k] for k in range(i + 1, size))) / lower[i][i]
    return solution
