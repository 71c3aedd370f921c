"""Registry of trackers: every `Tracker` of a file in this folder. Imports none of their libraries."""

from __future__ import annotations

from vitinit.initializers.plugins import Registry, concrete
from vitinit.runners.tracking.tracker import Tracker

REGISTRY: Registry[type[Tracker]] = Registry("tracker", (__package__,), accepts=concrete(Tracker), collect=True)
