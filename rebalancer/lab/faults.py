"""Faults, switchable while the lab runs: from Python, or with PUT /lab/faults.

A share is the part of the requests that are hit, drawn from a seeded RNG, so a test with share 1.0 or 0.0 is exact.
"""

import random
import threading
from typing import Any, Literal

import msgspec

from rebalancer.lab.clock import LabClock
from rebalancer.model.notation.decoding import json_decoder

Side = Literal["kubernetes", "prometheus"]


class Webhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An admission webhook that refuses evictions."""

    pods: str
    """Pattern of `namespace/name`, as in a shell."""
    code: int = 403
    name: str = "guard.example.com"
    message: str = "not now"
    """After "denied the request". With "Eviction triggered evacuation" and 429 it is KubeVirt's answer: the pod is
    annotated as evicted in the background; a test moves it."""
    fails: bool = False
    """It can't be called: 500, whatever `code` is."""


class Faults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The faults that are set. By default there are none."""

    sides: tuple[Side, ...] = ("kubernetes", "prometheus")
    """Which of the two APIs the request faults hit."""
    latency_seconds: float = 0.0
    """Real seconds before every answer."""
    throttled_share: float = 0.0
    """Answers 429 (without the cause DisruptionBudget: API throttling)."""
    retry_after_seconds: int | None = None
    """Sent with the 429; no Retry-After when absent."""
    error_share: float = 0.0
    """Answers 500."""
    cut_share: float = 0.0
    """Closes the connection in the middle of the body."""
    garbage_share: float = 0.0
    """Answers 200 with JSON that breaks off."""
    expire_continue: bool = False
    """Every continue token answers 410."""
    expire_watches: bool = False
    """Every watch that names a resourceVersion answers an ERROR event with code 410."""
    denied: tuple[tuple[str, str], ...] = ()
    """(verb, resource) that RBAC doesn't grant, as `["patch", "nodes"]` or `["create", "pods/eviction"]`: 403."""
    eviction_delay_seconds: float = 0.0
    """The eviction happens at once, its answer comes so many real seconds later."""
    webhooks: tuple[Webhook, ...] = ()
    """Admission webhooks that guard evictions."""
    prometheus_down: Literal["", "error", "closed"] = ""
    """Prometheus answers 503, or closes the connection without an answer."""
    partial: str = ""
    """Put into `warnings` of every Prometheus answer."""
    stale: tuple[str, ...] = ()
    """Nodes whose samples stand still from now on; `*` means all."""
    missing: tuple[str, ...] = ()
    """Nodes without any series; `*` means all."""
    nan: tuple[str, ...] = ()
    """Nodes whose values are NaN."""


class Switchboard:
    """The current faults. Thread-safe."""

    def __init__(self, *, seed: int, clock: LabClock) -> None:
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        self._clock = clock
        self._state = Faults()
        self._stale_since: dict[str, float] = {}

    @property
    def state(self) -> Faults:
        """The current faults."""
        return self._state

    def stale_since(self, node: str) -> float | None:
        """Lab time at which the node's samples began to stand still, None while they advance."""
        since = self._stale_since
        return since.get(node, since.get("*"))

    def set(self, **fields: Any) -> Faults:
        """Switch some faults, leave the others. Raises TypeError for one that doesn't exist."""
        with self._lock:
            return self._replace(msgspec.structs.replace(self._state, **fields))

    def put(self, document: bytes) -> Faults:
        """Replace the whole setting by a JSON document. Raises msgspec.DecodeError."""
        state = json_decoder(Faults).decode(document)
        with self._lock:
            return self._replace(state)

    def clear(self) -> None:
        """Clear all faults."""
        with self._lock:
            self._replace(Faults())

    def _replace(self, state: Faults) -> Faults:
        self._state = state
        self._stale_since = {name: self._stale_since.get(name, self._clock.now()) for name in state.stale}
        return state

    def hits(self, share: float) -> bool:
        """Whether this request is among the `share` that a fault hits."""
        if share <= 0:
            return False
        with self._lock:
            return self._random.random() < share


def names_node(nodes: tuple[str, ...], name: str) -> bool:
    """Whether a fault's node list includes the node."""
    return "*" in nodes or name in nodes
