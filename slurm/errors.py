"""The one exception of this package for everything a user can put right."""

from __future__ import annotations


class SlurmError(Exception):
    """One line: what is wrong, where, what is allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class Refused(SlurmError):
    """The cluster refused a part of a submission; `submitted` are the ids of the jobs it had taken before."""

    def __init__(self, message: str, submitted: list[str]) -> None:
        super().__init__(message)
        self.submitted = submitted
