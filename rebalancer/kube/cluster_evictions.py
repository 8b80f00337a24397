"""Evictions by all components, from their Events: rebalancer, kube-scheduler, kubelets, autoscalers, deschedulers.

Sources: pkg/scheduler/framework/preemption (Preempted), pkg/kubelet/eviction (Evicted), pkg/controller/tainteviction
(TaintManagerEviction) of Kubernetes; core/scaledown/actuation of cluster-autoscaler (ScaleDown); EvictedByVPA of the
vertical-pod-autoscaler's updater; Evicted of karpenter; reportingController of the deschedulers. A caller of the
Eviction API that writes no Event, such as `kubectl drain`, is not there.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from rebalancer.kube.actions.eviction_events import eviction_data
from rebalancer.kube.client.client import ApiClient, Resource
from rebalancer.kube.snapshot.lists import Gathered, read_list
from rebalancer.kube.snapshot.times import epoch_seconds
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.records.cluster_evictions import ClusterEviction

CORE_EVENTS = Resource(group="", version="v1", plural="events")
"""Those that were written as events.k8s.io/v1, too."""
REBALANCER = "rebalancer"
_NODE = re.compile(r"\b(?:on node|from) (\S+)")
_BY_REASON: Mapping[tuple[str, str], str] = {
    ("Preempted", ""): "kube-scheduler",
    ("Evicted", "kubelet"): "kubelet",
    ("Evicted", "karpenter"): "karpenter",
    ("TaintManagerEviction", ""): "taint-eviction-controller",
    ("ScaleDown", "cluster-autoscaler"): "cluster-autoscaler",
    ("EvictedByVPA", ""): "vpa-updater",
}
"""(reason, component; empty for any) -> evictor"""
_NOT_EVICTED = re.compile(r"^Cancelling deletion|dry.?run", re.IGNORECASE)


class _Meta(msgspec.Struct, rename="camel"):
    namespace: str = ""
    creation_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class _Involved(msgspec.Struct):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _Source(msgspec.Struct):
    component: str = ""
    host: str = ""


class _Event(msgspec.Struct, rename="camel"):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    involved_object: _Involved = msgspec.field(default_factory=_Involved)
    reason: str = ""
    message: str = ""
    source: _Source | None = None
    reporting_component: str = ""
    event_time: str | None = None
    first_timestamp: str | None = None


def read_cluster_evictions(client: ApiClient, snapshot: ClusterSnapshot, *, since: float) -> list[ClusterEviction]:
    """The evictions that Events since that time (seconds since the epoch) tell of, oldest first, each pod once for each
    evictor. The API server keeps Events for an hour by default. Raises ConnectError, UnsafeDataError."""
    events: Gathered[_Event] = read_list(client, CORE_EVENTS, item=_Event, collector=Gathered)[0]
    return cluster_evictions(events, _services(snapshot), since=since)


def cluster_evictions(
    events: Iterable[_Event], services: Mapping[tuple[str, str], str], *, since: float
) -> list[ClusterEviction]:
    """See `read_cluster_evictions`; `services`: (namespace, name of an owner) -> its service."""
    first: dict[tuple[str, str], ClusterEviction] = {}
    for event in events:
        found = _ours(event) or _others(event, services)
        if found is None or found.at < since:
            continue
        key = (found.evictor, found.uid or f"{found.namespace}/{found.pod}")
        if key not in first or found.at < first[key].at:
            first[key] = found
    return sorted(first.values(), key=lambda each: (each.at, each.namespace, each.pod))


def _ours(event: _Event) -> ClusterEviction | None:
    """It is about the service, and has the eviction in its annotation."""
    data = eviction_data(event.metadata.annotations)
    if data is None:
        return None
    namespace = event.metadata.namespace
    return ClusterEviction(
        at=_time(event),
        evictor=REBALANCER,
        namespace=namespace,
        pod=data.pod,
        uid=data.uid,
        service=f"{namespace}/{data.service}",
        node=data.node,
        reason=data.strategy,
        message=data.reason,
    )


def _others(event: _Event, services: Mapping[tuple[str, str], str]) -> ClusterEviction | None:
    about = event.involved_object
    source = event.source or _Source()
    component = event.reporting_component or source.component
    evictor = _evictor(event.reason, component)
    if about.kind != "Pod" or not evictor or _NOT_EVICTED.search(event.message):
        return None
    named = _NODE.search(event.message)
    node = source.host if evictor == "kubelet" else named[1].rstrip(".,") if named else ""
    return ClusterEviction(
        at=_time(event),
        evictor=evictor,
        namespace=about.namespace,
        pod=about.name,
        uid=about.uid,
        service=_service(about.namespace, about.name, services),
        node=node,
        reason=event.reason,
        message=" ".join(event.message.split()),
    )


def _evictor(reason: str, component: str) -> str:
    if "descheduler" in component and component != REBALANCER:
        return component.rpartition("/")[2]
    return _BY_REASON.get((reason, component)) or _BY_REASON.get((reason, "")) or ""


def _time(event: _Event) -> float:
    """When it was written first: later writings count its repeats."""
    for text in (event.first_timestamp, event.event_time, event.metadata.creation_timestamp):
        if text:
            return epoch_seconds(text)
    return float("nan")


def _service(namespace: str, pod: str, services: Mapping[tuple[str, str], str]) -> str:
    """By the name of the pod, which is gone: its owner's with a suffix."""
    return services.get((namespace, pod.rpartition("-")[0]), "")


def _services(snapshot: ClusterSnapshot) -> Mapping[tuple[str, str], str]:
    """(namespace, name of an owner) -> its service."""
    return {
        (owner.namespace, owner.name): str(snapshot.service_of(index)) for index, owner in enumerate(snapshot.owners)
    }
