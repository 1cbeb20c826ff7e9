"""Who leads: one row per role, held by renewal. Losing it costs only time, for every act is a compare-and-set."""

from __future__ import annotations

import os
import uuid
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from tursiops.fleet.models import ControllerLease

LEASE_S = 15.0
RENEW_S = 5.0


class Lease:
    def __init__(self, role: str, holder: str = "") -> None:
        self.role = role
        self.holder = holder or f"{os.uname().nodename[:40]}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.since: datetime | None = None  # when this holder began to lead
        self._renewed_at: datetime | None = None

    def hold(self, now: datetime | None = None) -> bool:
        """True if this holder leads now. Renews at most every 5 s."""
        now = now or timezone.now()
        if self._renewed_at is not None and (now - self._renewed_at).total_seconds() < RENEW_S:
            return True
        if self._take(now):
            self.since = self.since or now
            self._renewed_at = now
            return True
        self.since = self._renewed_at = None
        return False

    def release(self) -> None:
        """Let another lead at once."""
        ControllerLease.objects.filter(role=self.role, holder=self.holder).update(expires_at=timezone.now())
        self.since = self._renewed_at = None

    def _take(self, now: datetime) -> bool:
        until = now + timedelta(seconds=LEASE_S)
        mine_or_over = Q(holder=self.holder) | Q(expires_at__lte=now)
        rows = ControllerLease.objects.filter(mine_or_over, role=self.role)
        if rows.update(holder=self.holder, expires_at=until):
            return True
        if ControllerLease.objects.filter(role=self.role).exists():
            return False
        try:
            with transaction.atomic():
                ControllerLease.objects.create(role=self.role, holder=self.holder, expires_at=until)
        except IntegrityError:
            return False
        return True
