"""The one exception of this package for everything a user can put right."""

from __future__ import annotations


class SlurmError(Exception):
    """One line: what is wrong, where, what is allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))
