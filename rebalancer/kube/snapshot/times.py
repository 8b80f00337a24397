"""Kubernetes timestamps to seconds since the epoch, one or a column at a time."""

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from rebalancer.model.notation.arrays import Floats


def epoch_seconds(text: str | None) -> float:
    """`"2026-11-21T03:10:00Z"` (RFC 3339, fractions allowed) as seconds since the epoch; NaN for nonsense."""
    if not text:
        return float("nan")
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):  # a year that is none
        return float("nan")


def epoch_column(texts: Sequence[str | None]) -> Floats:
    """The same for a page, in whole seconds: the API server always writes `metav1.Time` in UTC without fractions."""
    # Cutting at 19 characters drops the Z, which numpy would refuse; an empty string is "not a time".
    try:
        moments = np.array([text or "" for text in texts], dtype="U19").astype("datetime64[s]")
    except ValueError:
        return np.array([epoch_seconds(text) for text in texts])
    seconds = moments.astype(np.float64)
    seconds[np.isnat(moments)] = np.nan
    return seconds


def rfc3339(seconds: float) -> str:
    """`metav1.Time`, in whole seconds."""
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(seconds: float) -> str:
    """`metav1.MicroTime`, as Leases carry it."""
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
