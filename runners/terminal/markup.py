"""Text from files, made safe for the terminal."""

from __future__ import annotations

from rich.markup import escape

from vitinit.initializers.errors import plain


def safe(text: str) -> str:
    """One printable line: no escape sequence reaches the terminal, and rich takes nothing in it for markup."""
    return escape(plain(text))
