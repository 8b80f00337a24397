"""Secrets that this process uses, taken out of every text that leaves it.

A server or proxy may echo a request's credentials in the body of an error, a credential plugin may print its own.
Readers of credentials `remember` them; messages of errors, answers of servers and log lines are `redacted`.
"""

import re
from typing import Final

MASK: Final = "***"
SHORTEST: Final = 4
"""A shorter secret is part of many words: replacing it would spoil the text and show what it is."""

_LOOKS_SECRET = (
    (re.compile(r"\b(Bearer|Basic)\s+(?!\*)[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1 {MASK}"),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+(\.[\w-]*)?"), MASK),  # a JSON Web Token
    (re.compile(r"(?<=://)[^\s/@:<]+:[^\s/@<*]+(?=@)"), MASK),
)

_known: set[str] = set()
"""Of this process. Adding to it and copying it are atomic."""


def remember(*secrets: str) -> None:
    """Take these out of every text from now on."""
    _known.update(found for secret in secrets if len(found := secret.strip()) >= SHORTEST)


def redacted(text: str) -> str:
    """The text without known secrets, and without what looks like credentials."""
    # the longest first, so that no part of a longer one is left
    for secret in sorted(_known.copy(), key=len, reverse=True):
        text = text.replace(secret, MASK)
    for pattern, masked in _LOOKS_SECRET:
        text = pattern.sub(masked, text)
    return text
