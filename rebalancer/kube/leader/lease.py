"""The cluster's Lease: the right to evict, held by one process.

A lock over coordination.k8s.io/v1 with the timing of client-go's leader election (15 s lease, 10 s to renew, an attempt
every 2 s), with three differences. Leadership is a deadline on this machine's boot-time clock, which also runs during
suspend: when it passes, the lease is lost for good, whatever the network does. A lease is taken over only after its
record was observed unchanged here for its whole duration: clocks of other machines are never compared. And the Lease
carries the identity of the ledger that counts the evictions, and the number of its last reservation: a process with
another ledger, or with one that lacks reservations, does not lead.

`leaseTransitions` is the term. It grows with each new holder, so that the ledger can reject a paused old leader.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import msgspec
import structlog
import urllib3

from rebalancer.kube.client.client import AnswerLostError, ApiClient, Resource, Retries, Timeouts
from rebalancer.kube.snapshot.times import epoch_seconds, rfc3339_micro
from rebalancer.model.errors import (
    ConnectError,
    LeaseHeldError,
    RebalancerError,
    UnsafeDataError,
    cluster_renamed,
    ledger_behind,
)

LOG = structlog.get_logger("rebalancer")

LEASES = Resource(group="coordination.k8s.io", version="v1", plural="leases")
LEDGER_ANNOTATION = "rebalancer.dev/ledger"
SEQUENCE_ANNOTATION = "rebalancer.dev/ledger-sequence"
CLUSTER_ANNOTATION = "rebalancer.dev/cluster"
CONFLICT_ATTEMPTS = 5
NOTE_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """client-go's defaults, in seconds."""

    duration: int = 15
    """Another process may take the lease after observing no renewal for this long."""
    renew_deadline: float = 10.0
    """The holder stops this long after its last renewal was sent; the rest allows for clock drift."""
    retry: float = 2.0


def boot_seconds() -> float:
    """Seconds of a clock that is never adjusted and that runs on during suspend."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


@dataclass(slots=True)
class Sighting:
    """The record of a Lease as last observed, and since when (boot-time clock); shared by successive locks of one
    process."""

    record: "_Record | None" = None
    since: float = 0.0


class LeaseLock:
    """The lease of one cluster, held by one process. Implements `model.decisions.ports.Lease`.

    As a context manager it is held for the block: acquired or UnsafeDataError, renewed by a thread, released at the
    end. `ledger_identity` is empty for a process that evicts nothing: the ledger of the Lease is neither checked nor
    changed. `cluster` is the name under which the ledger has this cluster's evictions. `last_term` is the highest term
    in the ledger: a Lease that was deleted and created again continues from there. `sequence` returns the number of the
    ledger's last reservation. `wait_seconds` bounds the attempts while another holder is alive; 0 is one attempt.
    Successive locks share one `sighting`; otherwise each starts observing from the beginning.
    """

    def __init__(
        self,
        *,
        client: ApiClient,
        namespace: str,
        name: str,
        identity: str,
        ledger_identity: str,
        cluster: str = "",
        last_term: int = 0,
        sequence: Callable[[], int] = lambda: 0,
        wait_seconds: float = 0.0,
        sighting: Sighting | None = None,
        timing: Timing = Timing(),
        boot_time: Callable[[], float] = boot_seconds,
        wall_time: Callable[[], float] = time.time,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._ledger = ledger_identity
        self._cluster = cluster
        self._last_term = last_term
        self._sequence = sequence
        self._renewing = threading.Lock()
        self._wait = wait_seconds
        self._observed = sighting or Sighting()
        self._timing = timing
        self._boot_time = boot_time
        self._wall_time = wall_time
        self._pause = pause
        self._lock = threading.Lock()
        self._deadline = float("-inf")
        self._held: dict[str, Any] | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def term(self) -> int | None:
        """The term held; None without the lease."""
        with self._lock:
            return None if self._held is None else int(self._held["spec"]["leaseTransitions"])

    def holds(self, margin_seconds: float = 0.0) -> bool:
        """Whether the lease stays valid for at least `margin_seconds` more."""
        with self._lock:
            return self._held is not None and self._boot_time() + margin_seconds < self._deadline

    def seconds_left(self) -> float:
        """Seconds until the lease expires without a renewal; 0 without it."""
        with self._lock:
            return 0.0 if self._held is None else max(0.0, self._deadline - self._boot_time())

    def __enter__(self) -> "LeaseLock":
        self.acquire()
        self.keep()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def acquire(self) -> None:
        """Acquire the lease.

        Raises UnsafeDataError when another process holds it or it belongs to another ledger, ConnectError when the
        server can't be reached or refuses. What `pause` raises ends the waiting.
        """
        give_up = self._boot_time() + self._wait
        sighting = self._observed
        conflicts = 0
        while True:
            lease = self._read()
            now = self._boot_time()
            record = _Record.of(lease, self._timing.duration)
            if lease is not None:
                self._check_ledger(lease)
            if record != sighting.record:
                first, sighting.record, sighting.since = sighting.record is None, record, now
                if not first and record.holder and now >= give_up:
                    raise self._held_by(record, "it was renewed during the wait")
            unchanged = now - sighting.since
            if not record.holder or unchanged >= record.duration:
                if self._take(lease):
                    return
                conflicts += 1
                if conflicts >= CONFLICT_ATTEMPTS:
                    raise self._held_by(record, "others keep changing it")
                continue
            if now >= give_up and self._looks_alive(record):
                raise self._held_by(record, f"renewed at {record.renewed}")
            self._pause(min(self._timing.retry, max(0.05, record.duration - unchanged)))

    def keep(self) -> None:
        """Start renewing it, in a thread of its own, until it is released or lost."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._keep, name=f"lease {self._namespace}/{self._name}", daemon=True)
        self._thread.start()

    def renew(self) -> bool:
        """Renew once. False when the lease is lost for good; a transient failure keeps the old deadline.

        Never raises for an API error.
        """
        with self._renewing:
            return self._renew()

    def noted_sequence(self) -> int:
        """Number of the ledger's last reservation that the Lease knows of; 0 without one. Raises ConnectError."""
        lease = self._read()
        return 0 if lease is None else _sequence_of(lease)

    def note_sequence(self) -> bool:
        """Whether the Lease has the number of the ledger's last reservation; it is written where it hasn't yet.

        Before each eviction call: a ledger that is restored later is seen to lack it. Of several calls at once the
        first writes the numbers of all that are reserved by then.
        """
        last = self._sequence()
        for _ in range(NOTE_ATTEMPTS):
            with self._renewing:
                with self._lock:
                    if self._held is not None and _sequence_of(self._held) >= last:
                        return True
                if not self._renew():
                    return False
        return False

    def _renew(self) -> bool:
        with self._lock:
            held = self._held
            expired = self._boot_time() >= self._deadline
        if held is None or expired:
            self._lose()
            return False
        started = self._boot_time()
        wanted = held | {
            "metadata": held["metadata"] | {"annotations": self._annotations(held)},
            "spec": held["spec"] | {"renewTime": rfc3339_micro(self._wall_time())},
        }
        try:
            response = self._put(wanted)
            if response.status == 409:
                return self._reread()
            if response.status == 200:
                return self._keep_record(response, started, renewed=True)
        except RebalancerError:
            return True
        return True

    def abandon(self) -> None:
        """Renew it no more, and hold it no more. Nothing is sent: it runs out, or another process has it."""
        self._stop.set()
        self._lose()

    def release(self) -> None:
        """Release the lease, so that the next holder need not wait. Best effort: it would expire anyway."""
        self._stop.set()
        if self._thread is not None:
            # A renewal in progress would acquire it again.
            self._thread.join()
            self._thread = None
        with self._lock:
            held, self._held, self._deadline = self._held, None, float("-inf")
        if held is None:
            return
        held["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": rfc3339_micro(self._wall_time())}
        try:
            self._put(held)
        except RebalancerError:
            return

    def _keep(self) -> None:
        while not self._stop.wait(self._timing.retry):
            try:
                if not self.renew():
                    return
            except Exception as error:
                # it runs out, as after every renewal that fails
                LOG.error("lease not renewed", error=str(error), exc_info=error)

    def _take(self, lease: dict[str, Any] | None) -> bool:
        """Create or update the Lease with this process as holder; False on a conflict."""
        started = self._boot_time()
        now = rfc3339_micro(self._wall_time())
        before = lease or {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
        }
        spec = before.get("spec") or {}
        wanted = before | {
            "metadata": before["metadata"] | {"annotations": self._annotations(before)},
            "spec": spec
            | {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": self._timing.duration,
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": max(int(spec.get("leaseTransitions") or 0), self._last_term) + 1,
            },
        }
        try:
            response = self._post(wanted) if lease is None else self._put(wanted)
        except AnswerLostError:
            # The write may have succeeded.
            return self._adopt(wanted, started)
        if response.status in (200, 201):
            self._keep_record(response, started)
            return True
        if response.status in (404, 409):
            return False
        raise self._client.error(response, verb="create" if lease is None else "update", resource=LEASES.rbac_name)

    def _annotations(self, lease: dict[str, Any]) -> dict[str, str]:
        theirs = lease["metadata"].get("annotations") or {}
        if not self._ledger:
            return theirs
        ours = {LEDGER_ANNOTATION: self._ledger, SEQUENCE_ANNOTATION: str(self._sequence())}
        if self._cluster:
            ours[CLUSTER_ANNOTATION] = self._cluster
        return theirs | ours

    def _adopt(self, wanted: dict[str, Any], started: float) -> bool:
        """After a lost answer: whether the Lease holds exactly what was sent."""
        lease = self._read()
        if lease is None or lease.get("spec") != wanted["spec"]:
            return False
        self._hold(lease, started)
        return True

    def _keep_record(self, response: urllib3.BaseHTTPResponse, started: float, *, renewed: bool = False) -> bool:
        lease = self._decoded(response)
        if (lease.get("spec") or {}).get("holderIdentity") != self._identity:
            raise UnsafeDataError(f"{self._client.server}: the lease: the answer to a write has another holder")
        return self._hold(lease, started, renewed=renewed)

    def _hold(self, lease: dict[str, Any], started: float, *, renewed: bool = False) -> bool:
        """Hold it; a lease that was lost meanwhile is not `renewed`."""
        with self._lock:
            if renewed and (self._held is None or self._boot_time() >= self._deadline):
                self._held, self._deadline = None, float("-inf")
                return False
            # Counted from before the request was sent: no other process can have observed the renewal earlier.
            self._held, self._deadline = lease, started + self._timing.renew_deadline
            return True

    def _reread(self) -> bool:
        """After a conflict: whether the lease is still held here, in the same term and with the same ledger."""
        lease = self._read()
        with self._lock:
            mine = self._held
            if lease is not None and mine is not None:
                same = all(
                    lease.get("spec", {}).get(key) == mine["spec"].get(key)
                    for key in ("holderIdentity", "leaseTransitions")
                )
                if same and _ledger_of(lease) == _ledger_of(mine):
                    self._held = lease
                    return True
        self._lose()
        return False

    def _lose(self) -> None:
        with self._lock:
            self._held, self._deadline = None, float("-inf")

    def _read(self) -> dict[str, Any] | None:
        path = LEASES.path(namespace=self._namespace, name=self._name)
        once = Retries(attempts=2, total_seconds=self._timing.retry)
        response = self._client.get(path, timeouts=self._timeouts, retries=once)
        if response.status == 404:
            return None
        if response.status != 200:
            raise self._client.error(response, verb="get", resource=LEASES.rbac_name)
        return self._decoded(response)

    def _decoded(self, response: urllib3.BaseHTTPResponse) -> dict[str, Any]:
        lease = self._client.decode(response.data, dict[str, Any], what="the lease")
        metadata, spec = lease.get("metadata"), lease.get("spec") or {}
        if not isinstance(metadata, dict) or metadata.get("name") != self._name or not isinstance(spec, dict):
            raise UnsafeDataError(f"{self._client.server}: the lease: the answer is another document")
        return lease

    def _post(self, lease: dict[str, Any]) -> urllib3.BaseHTTPResponse:
        path = LEASES.path(namespace=self._namespace)
        response = self._client.send("POST", path, msgspec.json.encode(lease), timeouts=self._timeouts)
        if response.status == 404:
            raise ConnectError(f"{self._client.server}: namespace {self._namespace} of the lease doesn't exist")
        return response

    def _put(self, lease: dict[str, Any]) -> urllib3.BaseHTTPResponse:
        # The record carries its resourceVersion: an update of anything newer answers 409.
        path = LEASES.path(namespace=self._namespace, name=self._name)
        return self._client.send("PUT", path, msgspec.json.encode(lease), timeouts=self._timeouts)

    @property
    def _timeouts(self) -> Timeouts:
        # Half the deadline at most, so that one lost answer leaves time for another try.
        half = self._timing.renew_deadline / 2
        return Timeouts(connect_seconds=min(2.0, half), read_seconds=half)

    def _check_ledger(self, lease: dict[str, Any]) -> None:
        if not self._ledger:
            return
        theirs = _ledger_of(lease)
        if theirs and theirs != self._ledger:
            raise UnsafeDataError(
                f"the lease {self._namespace}/{self._name} belongs to ledger {theirs}, this process uses "
                f"{self._ledger}: two databases would each allow the full limits. Use the same database, or, if it was "
                f"replaced on purpose, delete the annotation {LEDGER_ANNOTATION} from the lease"
            )
        ours, known = self._sequence(), _sequence_of(lease)
        name = _annotation(lease, CLUSTER_ANNOTATION)
        if theirs and ours < known and name and self._cluster and name != self._cluster:
            raise cluster_renamed(self._cluster, before=name)
        if theirs and ours < known:
            raise ledger_behind(ledger=ours, known=known)

    def _looks_alive(self, record: "_Record") -> bool:
        # Good enough to stop waiting, never to take over: the holder's clock may be wrong either way.
        return not record.renewed or epoch_seconds(record.renewed) + record.duration > self._wall_time()

    def _held_by(self, record: "_Record", why: str) -> LeaseHeldError:
        return LeaseHeldError(
            f"the lease {self._namespace}/{self._name} is held by {record.holder or 'an earlier process'} ({why}): "
            f"only one rebalancer may evict in a cluster"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """The part of the record that a renewal changes."""

    holder: str = ""
    renewed: str = ""
    transitions: int = 0
    duration: float = 0.0

    @classmethod
    def of(cls, lease: dict[str, Any] | None, default_duration: float) -> "_Record":
        spec = (lease or {}).get("spec") or {}
        return cls(
            holder=spec.get("holderIdentity") or "",
            renewed=spec.get("renewTime") or "",
            transitions=int(spec.get("leaseTransitions") or 0),
            duration=float(spec.get("leaseDurationSeconds") or default_duration),
        )


def _sequence_of(lease: dict[str, Any]) -> int:
    text = _annotation(lease, SEQUENCE_ANNOTATION)
    return int(text) if text.isdecimal() else 0


def _ledger_of(lease: dict[str, Any]) -> str:
    return _annotation(lease, LEDGER_ANNOTATION)


def _annotation(lease: dict[str, Any], key: str) -> str:
    return str((lease["metadata"].get("annotations") or {}).get(key, ""))
