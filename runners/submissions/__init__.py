"""Methods of strangers: submit one, and verify it on fresh seeds without running its code where it could cheat."""
