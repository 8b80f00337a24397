"""Secrets that this process uses, taken out of every text that leaves it.

A server or proxy may echo a request's credentials in the body of an error, as they are or in another form, and a
credential plugin may print its own. Readers of credentials `remember` them; messages of errors, answers of servers and
log lines are `redacted`, and the output of other programs is `redacted_output`.
"""

import base64
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

MASK: Final = "***"
SHORTEST: Final = 4
"""A shorter secret is part of many words: replacing it would spoil the text and show what it is."""
_EDGE: Final = r"(?:[\w+/-]|%2[bf])?"
SHORTEST_BASE64: Final = 8
"""Fewer characters of base64 stand in many words too."""

_LOOKS_SECRET = (
    (re.compile(r"\b(Bearer|Basic)\s+(?!\*)[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1 {MASK}"),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+(\.[\w-]*)?"), MASK),  # a JSON Web Token
    (re.compile(r"(?<=://)[^\s/@:<]+:[^\s/@<*]+(?=@)"), MASK),
)
_SECRET_NAME: Final = (
    r"[\w-]*(?:token|secret|passwo?r?d|passphrase|credential|api-?_?key|private-?_?key|assertion)[\w-]*"
)
_OUTPUT = (
    (re.compile(rf"({_SECRET_NAME}[\"']?\s*[:=]\s*[\"']?)(?!\*)[^\s\"',;&]+", re.IGNORECASE), rf"\1{MASK}"),
    # long and of letters and digits: no word, but a key, a token or an identifier
    (re.compile(r"(?=[\w.~+/=%-]{0,199}\d)(?=[\w.~+/=%-]{0,199}[A-Za-z])[\w.~+/=%-]{16,}"), MASK),
)
_PERCENT_ENCODED: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
SECRET_FLAG: Final = re.compile(rf"--?({_SECRET_NAME})(?:=(.+))?", re.IGNORECASE | re.DOTALL)
"""A flag whose value, in it or behind it, is a secret."""


class _Form(NamedTuple):
    """A way in which a secret may be echoed."""

    text: str
    """In lower case: where it isn't in a text, the pattern needn't be looked for."""
    pattern: re.Pattern[str]


_known: dict[str, tuple[_Form, ...]] = {}
"""Secret -> its forms, of this process. Adding to it and copying it are atomic."""


def remember(*secrets: str) -> None:
    """Take these out of every text from now on: as they are, in other case, percent-encoded, and in base64, also as a
    part of what was encoded."""
    for secret in secrets:
        found = secret.strip()
        if len(found) >= SHORTEST and found not in _known:
            _known[found] = tuple(_forms(found))


def redacted(text: str) -> str:
    """The text without known secrets, and without what looks like credentials."""
    # the longest first, so that no part of a longer one is left
    for secret in sorted(_known.copy(), key=len, reverse=True):
        text = _without(text, _known[secret])
    for pattern, masked in _LOOKS_SECRET:
        text = pattern.sub(masked, text)
    return text


def redacted_output(text: str) -> str:
    """The same for the output of another program, whose secrets this process doesn't know: also without values of what
    is named like a secret, and without long words of letters and digits."""
    text = redacted(text)
    for pattern, masked in _OUTPUT:
        text = pattern.sub(masked, text)
    return text


def _without(text: str, forms: tuple[_Form, ...]) -> str:
    lower = text.lower()
    decoded = _percent_decoded(text).lower() if "%" in text else lower
    for form in forms:
        if form.text in lower or form.text in decoded:
            text = form.pattern.sub(MASK, text)
    return text


def _percent_decoded(text: str) -> str:
    found = _PERCENT_ENCODED.sub(lambda encoded: bytes([int(encoded[1], 16)]), text.encode("utf-8", "replace"))
    return found.decode("utf-8", "replace")


def _forms(secret: str) -> Iterator[_Form]:
    yield _Form(secret.lower(), re.compile("".join(map(_encodable, secret)), re.IGNORECASE))
    content = secret.encode()
    for before in range(3):
        # a character at either end may hold bits of what surrounds the secret, too
        encoded = base64.b64encode(bytes(before) + content).decode().rstrip("=")
        inner = encoded[-(-before * 8 // 6) : (before + len(content)) * 8 // 6]
        if len(inner) < SHORTEST_BASE64:
            continue
        for alphabet in {inner, inner.replace("+", "-").replace("/", "_")}:
            pattern = _EDGE + "".join(map(_encodable, alphabet)) + _EDGE + "(?:=|%3d){0,2}"
            yield _Form(alphabet.lower(), re.compile(pattern, re.IGNORECASE))


def _encodable(character: str) -> str:
    """A pattern of the character, as it is or percent-encoded."""
    encoded = "".join(f"%{each:02x}" for each in character.encode())
    return f"(?:{re.escape(character)}|{encoded})"
