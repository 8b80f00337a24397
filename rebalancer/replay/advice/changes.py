"""Changes of a recording: pods that have other templates or owners than they had. Nodes, pods and usage stay."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from rebalancer.model.cluster.annotations import EVICT_JOB
from rebalancer.model.cluster.objects import PodTemplate
from rebalancer.model.cluster.owners import Service
from rebalancer.model.notation.arrays import Rows
from rebalancer.model.recordings.recording import Recording
from rebalancer.replay.simulation.loads import top_owners


def services_of(recording: Recording) -> dict[Service, Rows]:
    """The pods of each service; bare pods are in none."""
    tops = top_owners(recording.owners)[recording.pods.owner]
    order = np.argsort(tops, kind="stable")
    found, first = np.unique(tops[order], return_index=True)
    out: dict[Service, Rows] = {}
    for top, rows in zip(found.tolist(), np.split(order, first[1:]), strict=True):
        if top >= 0:
            owner = recording.owners[top]
            out[Service(kind=owner.kind, namespace=owner.namespace, name=owner.name)] = rows
    return out


@dataclass(frozen=True, slots=True)
class EvictableJobs:
    """The pods of some Jobs may be evicted: by their annotation, and without counting as a failure."""

    services: frozenset[Service]

    def __call__(self, recording: Recording) -> Recording:
        found = services_of(recording)
        pods = np.concatenate([np.zeros(0, dtype=np.int64), *(found[each] for each in self.services if each in found)])
        jobs = set(recording.pods.owner[pods].tolist())
        changed = _with_templates(recording, pods, _evictable)
        owners = tuple(
            replace(owner, spares_disruptions=True) if at in jobs else owner for at, owner in enumerate(changed.owners)
        )
        return replace(changed, owners=owners)


def _evictable(template: PodTemplate) -> PodTemplate:
    return msgspec.structs.replace(template, annotations={**template.annotations, EVICT_JOB: "true"})


@dataclass(frozen=True, slots=True)
class CpuRequests:
    """All pods of some services request other CPU; those that ran at the start stay where they were."""

    millicores: Mapping[Service, float]
    """Of each pod."""

    def __call__(self, recording: Recording) -> Recording:
        found = services_of(recording)
        for service, cpu in self.millicores.items():
            if service in found:
                recording = _with_templates(recording, found[service], _Requesting(cpu))
        return recording


@dataclass(frozen=True, slots=True)
class _Requesting:
    millicores: float

    def __call__(self, template: PodTemplate) -> PodTemplate:
        cpu = self.millicores
        return msgspec.structs.replace(
            template, cpu_request_millicores=cpu, cpu_scored_millicores=cpu, scored_on_arrival=None
        )


def _with_templates(recording: Recording, pods: Rows, edit: Callable[[PodTemplate], PodTemplate]) -> Recording:
    templates, row = recording.pod_templates, recording.pods.template.copy()
    before, inverse = np.unique(row[pods], return_inverse=True)
    row[pods] = len(templates) + inverse
    table = templates.followed_by([edit(templates[index]) for index in before.tolist()])
    return replace(recording, pod_templates=table, pods=replace(recording.pods, template=row))
