"""Pod templates, interned by their bytes.

150,000 pods come from a few thousand templates. The part of a pod that its template determines is encoded again from
the narrow record (which costs a microsecond and is canonical) and looked up; only for a new template are the requests
summed. A `PodTemplate` is decoded on access.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import msgspec
import numpy as np
from numpy.typing import NDArray

from rebalancer.kube.snapshot.effective_requests import NO_REQUESTS, Requests, effective_requests, memory_limits
from rebalancer.kube.snapshot.records import Container, Count, Pod, PodSpec, Template, VolumeSource
from rebalancer.kube.snapshot.resizes import counted_spec
from rebalancer.model.cluster.annotations import is_kept
from rebalancer.model.cluster.objects import PodTemplate, Volume
from rebalancer.model.cluster.obstacles import one_line
from rebalancer.model.cluster.pod_templates import PodTemplateTable
from rebalancer.model.cluster.releases import OLDEST_MINOR
from rebalancer.model.cluster.template_index import PodTemplateOutline
from rebalancer.model.notation.arrays import Bools, Floats
from rebalancer.model.notation.decoding import json_decoder

DEFAULT_GRACE_SECONDS = 30.0
ANY_IP = "0.0.0.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplateColumns:
    """What the pods of each template request: columns of length `templates`. Those of one that can't be read are 0."""

    cpu_request_millicores: Floats
    memory_request_bytes: Floats
    cpu_scored_millicores: Floats
    memory_scored_bytes: Floats
    priority: NDArray[np.int64]
    unreadable: Bools


class _KeptKeys(dict[str, bool]):
    """Whether an annotation is one that decisions read; evaluated once for each key."""

    def __missing__(self, key: str) -> bool:
        kept = self[key] = is_kept(key)
        return kept


class PodTemplates:
    """The table under construction."""

    def __init__(self, minor: int = OLDEST_MINOR) -> None:
        """`minor`: as of the snapshot."""
        self._minor = minor
        self._index: dict[bytes, int] = {}
        self._figures_of: list[Figures] = []
        self._priorities: list[int] = []
        self._figures: dict[bytes, Figures] = {}
        self._encode = msgspec.json.Encoder().encode
        self._is_kept = _KeptKeys()
        self._last_template: tuple[object, ...] = ()
        self._last_index = -1
        self._finished: tuple[PodTemplateTable, PodTemplateColumns] | None = None
        """What was made of the table as it is now."""
        self._before: PodTemplateTable | None = None
        """The last finished table, while no template of it is gone."""
        self.with_claims: list[bool] = []
        """Which templates have a PersistentVolumeClaim or a generic ephemeral volume."""

    def __len__(self) -> int:
        return len(self._figures_of)

    @property
    def uses_claims(self) -> bool:
        """Whether any template does."""
        return any(self.with_claims)

    @property
    def causes(self) -> list[str]:
        """Why each template can't be read; empty for one that can."""
        return [each.cause for each in self._figures_of]

    def index_of(self, pod: Pod, *, of_daemonset: bool) -> int:
        """The index of the pod's template."""
        meta, (spec, counts) = pod.metadata, counted_spec(pod, self._minor)
        affinity = spec.affinity
        if of_daemonset and affinity is not None:
            # The DaemonSet controller pins each of its pods to its node, which would make every pod a template.
            affinity = msgspec.structs.replace(affinity, node_affinity=None)
        template = (
            meta.labels,
            self._kept(meta.annotations) if meta.annotations else None,
            spec.node_selector,
            affinity,
            spec.tolerations,
            spec.topology_spread_constraints,
            spec.volumes,
            spec.containers,
            spec.init_containers,
            spec.resources,
            spec.overhead,
            spec.termination_grace_period_seconds,
            spec.priority,
            spec.priority_class_name,
            spec.scheduler_name,
            pod.status.qos_class,
            spec.resource_claims,
            pod.unread,
            spec.scheduling_group is not None or spec.workload_ref is not None,
            spec.host_network and spec.host_users is False,
            counts,
        )
        # Pods are listed by name, so siblings are adjacent: comparing two is cheaper than encoding one.
        if template == self._last_template:
            return self._last_index
        blob = self._encode(template)
        index = self._index.get(blob)
        if index is None:
            self._finished = None
            index = len(self._figures_of)
            self._add(pod, spec, counts)
            self._index[blob] = index
        self._last_template, self._last_index = template, index
        return index

    def table(self) -> PodTemplateTable:
        """The finished table; the same one until a template comes or goes."""
        return self._finish()[0]

    def columns(self) -> PodTemplateColumns:
        """The finished columns."""
        return self._finish()[1]

    def _finish(self) -> tuple[PodTemplateTable, PodTemplateColumns]:
        if self._finished is None:
            table = PodTemplateTable(list(self._index), decode_template, outline_template, extends=self._before)
            self._finished, self._before = (table, self._columns()), table
        return self._finished

    def _columns(self) -> PodTemplateColumns:
        rows = [each.requests for each in self._figures_of]
        return PodTemplateColumns(
            cpu_request_millicores=np.array([row.cpu_millicores for row in rows], dtype=np.float64),
            memory_request_bytes=np.array([row.memory_bytes for row in rows], dtype=np.float64),
            cpu_scored_millicores=np.array([row.cpu_scored_millicores for row in rows], dtype=np.float64),
            memory_scored_bytes=np.array([row.memory_scored_bytes for row in rows], dtype=np.float64),
            priority=np.array(self._priorities, dtype=np.int64),
            unreadable=np.array([bool(cause) for cause in self.causes], dtype=np.bool_),
        )

    def keep(self, used: NDArray[np.bool_]) -> None:
        """Drop the templates that are not `used` (templates,); the others keep their order."""
        self._finished = self._before = None
        kept, blobs = np.flatnonzero(used).tolist(), list(self._index)
        self._index = {blobs[old]: new for new, old in enumerate(kept)}
        self._figures_of = [self._figures_of[old] for old in kept]
        self._priorities = [self._priorities[old] for old in kept]
        self.with_claims = [self.with_claims[old] for old in kept]
        self._figures.clear()
        self._last_template, self._last_index = (), -1

    def _kept(self, annotations: Mapping[str, str]) -> dict[str, str] | None:
        is_kept = self._is_kept
        kept = [key for key in annotations if is_kept[key]]
        return {key: annotations[key] for key in kept} if kept else None

    def _add(self, pod: Pod, spec: PodSpec, counts: list[Count] | None) -> None:
        # Templates that differ in labels only (StatefulSets put each pod's name in one) are summed once.
        parts = (spec.containers, spec.init_containers, spec.resources, spec.overhead, counts, pod.unread)
        requested = self._encode(parts)
        figures = self._figures.get(requested)
        if figures is None:
            figures = self._figures[requested] = figures_of(spec, pod.unread, counts)
        self._figures_of.append(figures)
        self._priorities.append(spec.priority)
        self.with_claims.append(
            any(
                volume.persistent_volume_claim is not None or volume.ephemeral is not None
                for volume in spec.volumes or ()
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a template requests and may use; nothing where that can't be read, with the cause."""

    requests: Requests = NO_REQUESTS
    memory_limits: tuple[float, ...] = ()
    """As `PodTemplate`'s."""
    cause: str = ""


def figures_of(template: PodSpec | Template, unread: str, counts: list[Count] | None) -> Figures:
    """The figures. `unread` is the cause where the pod could not be read in full; `counts` as a `Template`'s."""
    containers, inits = template.containers or [], template.init_containers or []
    try:
        if unread:
            raise ValueError(unread)
        return Figures(
            requests=effective_requests(
                containers=containers,
                init_containers=inits,
                pod_level=template.resources,
                overhead=template.overhead,
                counts=counts,
            ),
            memory_limits=memory_limits([*containers, *sidecars_of(inits)], template.resources),
        )
    except (ValueError, OverflowError) as error:
        return Figures(cause=one_line(str(error)))


def sidecars_of(inits: Sequence[Container]) -> list[Container]:
    """The init containers that run as long as the others."""
    return [container for container in inits if container.restart_policy == "Always"]


def not_modelled(template: Template) -> str:
    """As `PodTemplate`'s."""
    if template.resource_claims:
        return "claims of dynamic resource allocation (DRA)"
    return "kube-scheduler places its PodGroup as one (spec.schedulingGroup)" if template.grouped else ""


def _required_features(template: Template) -> tuple[str, ...]:
    """As `PodTemplate`'s. Source: component-helpers `nodedeclaredfeatures`, `InferForScheduling` of each feature."""
    containers = chain(template.containers or (), template.init_containers or ())
    rules = chain.from_iterable(each.restart_policy_rules or () for each in containers)
    restarts_all = any(each.action == "RestartAllContainers" for each in rules)
    return (
        *(("RestartAllContainersOnContainerExits",) if restarts_all else ()),
        *(("UserNamespacesHostNetworkSupport",) if template.users_on_host_network else ()),
    )


def decode_template(blob: bytes) -> PodTemplate:
    """An interned template as a `PodTemplate`."""
    template = json_decoder(Template).decode(blob)
    containers, inits = template.containers or [], template.init_containers or []
    read = figures_of(template, template.unread, template.counts)
    figures = read.requests
    grace = template.termination_grace_period_seconds
    return PodTemplate(
        labels=template.labels or {},
        annotations=template.annotations or {},
        node_selector=template.node_selector or {},
        affinity=template.affinity,
        tolerations=tuple(template.tolerations or ()),
        topology_spread=tuple(template.topology_spread_constraints or ()),
        volumes=tuple(found for volume in template.volumes or () if (found := _volume(volume)) is not None),
        host_ports=_host_ports([*containers, *sidecars_of(inits)]),
        cpu_request_millicores=figures.cpu_millicores,
        memory_request_bytes=figures.memory_bytes,
        memory_limits=read.memory_limits,
        cpu_scored_millicores=figures.cpu_scored_millicores,
        memory_scored_bytes=figures.memory_scored_bytes,
        scored_on_arrival=figures.scored_on_arrival,
        extended_requests=figures.extended,
        images=tuple(container.image for container in (*containers, *inits)),
        volume_images=tuple(volume.image.reference for volume in template.volumes or () if volume.image is not None),
        grace_seconds=DEFAULT_GRACE_SECONDS if grace is None else float(grace),
        priority_class=template.priority_class_name,
        scheduler_name=template.scheduler_name,
        qos=template.qos_class or "BestEffort",
        required_features=_required_features(template),
        not_modelled=not_modelled(template),
    )


class _Head(msgspec.Struct, array_like=True, gc=False):
    """The first fields of a `Template`; what follows is skipped."""

    labels: dict[str, str] | None
    annotations: msgspec.Raw
    node_selector: msgspec.Raw
    affinity: msgspec.Raw
    tolerations: msgspec.Raw
    topology_spread_constraints: msgspec.Raw


_head = json_decoder(_Head).decode


def outline_template(blob: bytes) -> PodTemplateOutline:
    """The outline of an interned template, in a tenth of the time of decoding all of it."""
    head = _head(blob)
    affinity = bytes(head.affinity)
    spreads = bytes(head.topology_spread_constraints) not in (b"null", b"[]")
    return PodTemplateOutline(head.labels or {}, b"" if affinity == b"null" else affinity, spreads)


def _volume(source: VolumeSource) -> Volume | None:
    """None for volumes that move with their pod: config maps, secrets, tokens, network storage."""
    if source.host_path is not None:
        return Volume(host_path={})
    if source.empty_dir is not None:
        return Volume(empty_dir=source.empty_dir)
    if source.persistent_volume_claim is not None:
        return Volume(persistent_volume_claim=source.persistent_volume_claim)
    if source.ephemeral is not None:
        return Volume(ephemeral={})
    return None


def _host_ports(containers: list[Container]) -> tuple[tuple[str, int, str], ...]:
    ports = chain.from_iterable(container.ports or () for container in containers)
    return tuple(
        sorted({(port.protocol or "TCP", port.host_port, port.host_ip or ANY_IP) for port in ports if port.host_port})
    )
