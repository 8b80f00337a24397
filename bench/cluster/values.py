"""Small values of the synthetic cluster: times, hashes, uids, JSON without spaces."""

import json
import random
from datetime import UTC, datetime

START = datetime(2026, 11, 1, tzinfo=UTC).timestamp()


def compact(value: object) -> str:
    """JSON as the API server writes it."""
    return json.dumps(value, separators=(",", ":"))


def stamp(seconds: float) -> str:
    """A `metav1.Time`, so many seconds after the cluster's beginning."""
    return datetime.fromtimestamp(START + seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def short_hash(chance: random.Random) -> str:
    """Ten hex digits."""
    return f"{chance.getrandbits(40):010x}"


def new_uid(chance: random.Random) -> str:
    """A uid as every object has one."""
    text = f"{chance.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def child_uid(uid: str, number: int) -> str:
    """The uid of a workload's n-th child."""
    return f"{uid[:-2]}{number:02x}"
