"""Kubernetes Events about evictions and policy reloads, as `kubectl describe` shows them.

Best effort: nothing here raises; an event that can't be written soon is dropped and counted.
"""

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from rebalancer.kube.actions.eviction_events import EVENTS, eviction_annotation
from rebalancer.kube.client.client import ApiClient, Timeouts, status_of
from rebalancer.kube.snapshot.owners import KNOWN_GROUPS
from rebalancer.kube.snapshot.times import rfc3339_micro
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.ports import Clock
from rebalancer.model.errors import RebalancerError

ACTION = "Rebalance"
NODE_NAMESPACE = "default"
"""Namespace of the events about objects without a namespace."""

LONGEST_NOTE_BYTES, LONGEST_WORD, LONGEST_NAME = 1024, 128, 253
PER_SECOND, BURST = 5.0, 25.0
FORBIDDEN_PAUSE_SECONDS, FAILED_PAUSE_SECONDS = 600.0, 30.0
TIMEOUTS = Timeouts(connect_seconds=1.0, read_seconds=2.0, total_seconds=2.0)
REFUSED_FOR_GOOD = frozenset({403, 405})
SEEN_NAMESPACE_END = "NamespaceTerminating"


@dataclass(slots=True, kw_only=True)
class EventStats:
    """Counters of events, for metrics."""

    written: int = 0
    left_out: int = 0
    """Dropped: over the rate limit, or the server refused events a moment ago."""
    failed: int = 0
    """Rejected by the server."""
    last_error: str = ""


class KubeEvents:
    """Implements `model.decisions.ports.EventSink`. Each call takes two seconds at most.

    No more than 5 a second after a burst of 25. When the server refuses (403) none is sent for ten minutes, when it
    doesn't answer or is ill for half a minute.
    """

    def __init__(
        self,
        *,
        client: ApiClient,
        clock: Clock,
        component: str = "rebalancer",
        instance: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`component` and `instance` are the event's reporting controller; `clock` dates the events."""
        self._client = client
        self._clock = clock
        self._component = component
        self._instance = instance[:LONGEST_WORD]
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._tokens, self._counted_at = BURST, monotonic()
        self._quiet_until = float("-inf")
        self.stats = EventStats()

    def about_service(
        self, owner: Owner, *, reason: str, note: str, warning: bool = False, eviction: Eviction | None = None
    ) -> None:
        """An event on a service's top owner. `reason` is one word in CamelCase, `note` a sentence. An `eviction` is
        written into an annotation too."""
        kind, _, group = owner.kind.partition(".")
        regarding = {"kind": kind, "namespace": owner.namespace, "name": owner.name, "uid": owner.uid}
        known = KNOWN_GROUPS.get(kind)
        # The version of a kind that is not Kubernetes' own isn't known: an event is found by kind, name and uid.
        if not group and known is not None:
            regarding["apiVersion"] = f"{known}/v1" if known else "v1"
        annotations = {} if eviction is None else eviction_annotation(eviction)
        namespace = owner.namespace or NODE_NAMESPACE
        self._write(regarding, namespace=namespace, reason=reason, note=note, warning=warning, annotations=annotations)

    def about_node(self, node: str, *, reason: str, note: str, warning: bool = False) -> None:
        """An event on a node. Its uid is the node's name, as the kubelet has it."""
        regarding = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node}
        self._write(regarding, namespace=NODE_NAMESPACE, reason=reason, note=note, warning=warning)

    def _write(
        self,
        regarding: dict[str, str],
        *,
        namespace: str,
        reason: str,
        note: str,
        warning: bool,
        annotations: dict[str, str] | None = None,
    ) -> None:
        if not self._may_send():
            return
        suffix = secrets.token_hex(8)
        body = {
            "apiVersion": f"{EVENTS.group}/{EVENTS.version}",
            "kind": "Event",
            "metadata": {
                "name": f"{regarding['name'][: LONGEST_NAME - len(suffix) - 1].rstrip('.')}.{suffix}",
                "namespace": namespace,
                **({"annotations": annotations} if annotations else {}),
            },
            "eventTime": rfc3339_micro(self._clock.now()),
            "type": "Warning" if warning else "Normal",
            "reason": reason[:LONGEST_WORD],
            "action": ACTION,
            "note": _cut(note),
            "regarding": regarding,
            "reportingController": self._component,
            "reportingInstance": self._instance,
        }
        pause, why = 0.0, ""
        try:
            response = self._client.send(
                "POST", EVENTS.path(namespace=namespace), msgspec.json.encode(body), timeouts=TIMEOUTS
            )
        except RebalancerError as error:
            pause, why = FAILED_PAUSE_SECONDS, str(error)
        else:
            if response.status not in (200, 201):
                why = str(self._client.error(response, verb="create", resource=EVENTS.rbac_name))
                ending = SEEN_NAMESPACE_END in status_of(response.data).causes
                if response.status in REFUSED_FOR_GOOD and not ending:
                    pause = FORBIDDEN_PAUSE_SECONDS
                elif response.status == 429 or response.status >= 500:
                    pause = FAILED_PAUSE_SECONDS
        with self._lock:
            if not why:
                self.stats.written += 1
                return
            self.stats.failed += 1
            self.stats.last_error = why
            if pause:
                self._quiet_until = self._monotonic() + pause

    def _may_send(self) -> bool:
        with self._lock:
            now = self._monotonic()
            self._tokens = min(BURST, self._tokens + (now - self._counted_at) * PER_SECOND)
            self._counted_at = now
            if now < self._quiet_until or self._tokens < 1.0:
                self.stats.left_out += 1
                return False
            self._tokens -= 1.0
            return True


def _cut(note: str) -> str:
    """A note of one line, of the length that the server accepts."""
    line = " ".join(note.split())
    if len(line.encode()) <= LONGEST_NOTE_BYTES:
        return line
    return line.encode()[: LONGEST_NOTE_BYTES - 3].decode("utf-8", "ignore") + "..."
