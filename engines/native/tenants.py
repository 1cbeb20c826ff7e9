"""Who has had how much of the engine: the virtual token counters of "Fairness in Serving Large Language Models"
(Sheng et al., OSDI 2024, Algorithm 2).

A tenant's counter grows by its prompt tokens when a request is admitted and by its drawn tokens as they come, a drawn
one counting twice. The tenant with the least counter is served next. One that had nothing waiting is lifted to the
least of those that wait, so that idleness earns no credit. Of two tenants that always have something waiting, neither
gets more than 2 max(longest prompt, 2 × tokens that fit in the KV cache) ahead of the other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import numpy as np

from engines.native.step import Int32

OUTPUT_WEIGHT = 2.0
"""What a drawn token costs in prompt tokens; the paper's choice, and the usual ratio of prices."""
MAX_IDLE = 1024
"""Tenants without a request whose counters are kept."""


class Tenants:
    """Counters by slot, a small number that a tenant keeps while it has requests, and a while longer.

    While one tenant is alone nothing is counted: the next one is lifted to its counter anyway.
    """

    def __init__(self) -> None:
        self.served = np.zeros(8)  # float64 [slots], virtual tokens
        self._slots: dict[str, int] = {}
        self._requests: dict[int, int] = {}  # slot → requests, of those that have any
        self._idle: OrderedDict[str, int] = OrderedDict()  # longest idle first
        self._floor = 0.0  # counter of the one that left last

    @property
    def several(self) -> bool:
        return len(self._requests) > 1

    @property
    def present(self) -> Iterable[int]:
        return self._requests

    def arrive(self, tenant: str) -> int:
        """A request of `tenant` comes; its slot. `leave` once for each."""
        slot = self._slots.get(tenant)
        if slot is None:
            slot = self._slots[tenant] = self._new_slot()
        self._idle.pop(tenant, None)
        self._requests[slot] = self._requests.get(slot, 0) + 1
        return slot

    def leave(self, tenant: str) -> None:
        """A request of `tenant` has ended."""
        slot = self._slots[tenant]
        self._requests[slot] -= 1
        if not self._requests[slot]:
            del self._requests[slot]
            self._idle[tenant] = slot
            self._floor = float(self.served[slot])

    def lift(self, slot: int, waiting: Iterable[int]) -> None:
        """Before a request of `slot`, which has none waiting, is queued. waiting: the slots that have."""
        others = [other for other in waiting if other != slot] or [other for other in self._requests if other != slot]
        least = min(self.served[others]) if others else self._floor
        self.served[slot] = max(self.served[slot], least)

    def admitted(self, slot: int, tokens: int) -> None:
        """tokens: of the prompt, that have to be computed."""
        if self.several:
            self.served[slot] += tokens

    def drawn(self, slots: Int32) -> None:
        """slots: int32 [k], of the requests that drew a token in this step."""
        if self.several:
            self.served += OUTPUT_WEIGHT * np.bincount(slots, minlength=len(self.served))

    def _new_slot(self) -> int:
        if len(self._idle) >= MAX_IDLE:
            tenant, slot = self._idle.popitem(last=False)
            del self._slots[tenant]
            self.served[slot] = 0.0
            return slot
        slot = len(self._slots)
        if slot == len(self.served):
            self.served = np.append(self.served, np.zeros(slot))
        return slot
