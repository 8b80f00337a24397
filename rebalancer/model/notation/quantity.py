"""Kubernetes quantities to numbers.

Source: k8s.io/apimachinery/pkg/api/resource, "Quantity": a decimal with a binary (Ki..Ei), decimal (n, u, m, k..E)
or scientific suffix.
"""

import re
from functools import lru_cache

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([numkMGTPE]|[KMGTPE]i)?")

_SUFFIX: dict[str, float] = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
    "Ei": 2.0**60,
}


LONGEST = 64
"""Characters. Kubernetes writes any amount that a machine can have in fewer."""

LARGEST = 2.0**53
"""The largest amount of anything that counts, in the unit in which it is counted (millicores, bytes, pieces): larger
ones are not exact in a column, and smaller ones added to them are lost."""


@lru_cache(maxsize=65536)
def parse_quantity(text: str) -> float:
    """The value of a quantity in its base unit (cores, bytes, pieces).

    Raises ValueError if `text` is no quantity. It is infinite where the number is too large for a float.
    """
    if len(text) > LONGEST:
        raise ValueError(f"not a Kubernetes quantity: {len(text)} characters, {text[:16]!r}…")
    match = _QUANTITY.fullmatch(text)
    # an exponent replaces the suffix, never precedes one
    if match is None or (match[2] and "e" in match[1].lower()):
        raise ValueError(f"not a Kubernetes quantity: {text!r}")
    return float(match[1]) * _SUFFIX[match[2] or ""]


def readable(text: str, *, scale: float = 1.0) -> float:
    """The value of a quantity in its base unit, which times `scale` is counted.

    Raises ValueError if `text` is no quantity, or no amount that a machine can have.
    """
    amount = parse_quantity(text)
    if not 0.0 <= amount * scale <= LARGEST:
        raise ValueError(f"{text} is out of range")
    return amount


def cpu_millicores(text: str) -> float:
    """A CPU quantity in millicores: `"250m"` -> 250.0, `"2"` -> 2000.0."""
    return parse_quantity(text) * 1000.0


def memory_bytes(text: str) -> float:
    """A memory quantity in bytes."""
    return parse_quantity(text)
