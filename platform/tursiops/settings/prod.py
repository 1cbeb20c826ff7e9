"""What `up` and every deployed process run with. Behaviour differs from the other modes by environment only."""

from tursiops.settings.base import *  # noqa: F403 - a settings module is its base plus overrides
