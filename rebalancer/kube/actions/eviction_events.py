"""Evictions in our Events, as structured data: a database that was restored has them counted again."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from rebalancer.kube.client.client import ApiClient, Resource
from rebalancer.kube.snapshot.lists import read_list
from rebalancer.kube.snapshot.times import epoch_seconds
from rebalancer.model.cluster.owners import Service
from rebalancer.model.decisions.eviction import (
    MAY_HAVE_HAPPENED,
    Eviction,
    Outcome,
    PodAmount,
    TargetNode,
    eviction_of,
    value_of,
)
from rebalancer.model.notation.decoding import json_decoder

EVENTS = Resource(group="events.k8s.io", version="v1", plural="events")
EVICTION_ANNOTATION = "rebalancer.dev/eviction"


class EvictionData(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The annotation's JSON. Times are seconds since the epoch. The namespace is the Event's."""

    pod: str
    uid: str
    node: str
    pool: str
    kind: str
    service: str
    strategy: str
    reason: str
    outcome: Outcome
    planned_at: float | None = None
    cpu_millicores: float | None = None
    resource: str = ""
    amounts: dict[str, tuple[float, float | None]] = {}
    """Resource besides CPU -> amount, and share of the node."""
    service_identity: str = ""
    level: str = ""
    owner_uid: str = ""
    target_node: str = ""
    target_pool: str = ""
    pull_bytes: float = 0.0
    ready_before: int = 0
    desired_before: int = 0
    grace_seconds: float | None = None
    deadline_at: float | None = None
    in_background: bool = False


_SAME = tuple(
    name for name in EvictionData.__struct_fields__ if name not in {"kind", "service", "target_node", "amounts"}
)
"""Fields of the record; a number that is not known is null here. The others have another form."""


def eviction_annotation(eviction: Eviction) -> dict[str, str]:
    """The annotation of the Event about an eviction."""
    data = EvictionData(
        **{name: _finite(value_of(eviction, name)) for name in _SAME},
        kind=eviction.service.kind,
        service=eviction.service.name,
        target_node=eviction.target_node,
        amounts={name: (each.amount, _finite(each.share)) for name, each in eviction.amounts.items()},
    )
    return {EVICTION_ANNOTATION: msgspec.json.encode(data).decode()}


class _Metadata(msgspec.Struct):
    namespace: str = ""
    creation_timestamp: str | None = msgspec.field(name="creationTimestamp", default=None)
    annotations: dict[str, str] | None = None


class _Event(msgspec.Struct):
    metadata: _Metadata


class _Evictions:
    """The evictions of the Events in a list; Events without one, or with one that can't be read, are left out."""

    def __init__(self) -> None:
        self.found: dict[str, Eviction] = {}
        """UID of the pod -> its newest eviction."""

    def add(self, items: Any) -> None:
        for item in items:
            each = _eviction(item)
            if each is not None and not (
                each.uid in self.found and self.found[each.uid].reserved.planned_at > each.reserved.planned_at
            ):
                self.found[each.uid] = each


def read_eviction_events(client: ApiClient) -> list[Eviction]:
    """The evictions that our Events tell of, oldest first. The API server keeps Events for an hour by default.

    Raises ConnectError, UnsafeDataError.
    """
    found = read_list(client, EVENTS, item=_Event, collector=_Evictions)[0].found
    return sorted(found.values(), key=lambda each: each.reserved.planned_at)


def eviction_data(annotations: Mapping[str, str] | None) -> EvictionData | None:
    """The eviction in the annotations of an Event; None where there is none, or it can't be read."""
    text = (annotations or {}).get(EVICTION_ANNOTATION)
    if text is None:
        return None
    try:
        return json_decoder(EvictionData).decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _eviction(event: _Event) -> Eviction | None:
    data = eviction_data(event.metadata.annotations)
    if data is None:
        return None
    # the server's time, in whole seconds: an annotation from the future would count for ever
    written = epoch_seconds(event.metadata.creation_timestamp) + 1.0
    if data.outcome not in MAY_HAVE_HAPPENED or not data.uid or math.isnan(written):
        return None
    known = {name: getattr(data, name) for name in _SAME if getattr(data, name) is not None}
    return eviction_of(
        **known | {"planned_at": min(known.get("planned_at", written), written)},
        namespace=event.metadata.namespace,
        service=Service(kind=data.kind, namespace=event.metadata.namespace, name=data.service),
        target_nodes=(TargetNode(data.target_node, 1.0),) if data.target_node else (),
        amounts={
            name: PodAmount(amount, math.nan if share is None else share)
            for name, (amount, share) in data.amounts.items()
        },
    )


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
