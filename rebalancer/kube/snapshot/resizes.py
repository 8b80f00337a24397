"""What a pod requests while it is resized in place, as the scheduler counts it.

The largest counts of what its spec requests, what the kubelet has allocated and what its cgroup has: until a smaller
size is in force, its room isn't free. The spec of a resize that the node can never carry out (Infeasible) doesn't
count. Kubernetes 1.36 takes the largest container by container, 1.37 of the pod's totals. Source: component-helpers
`resource.PodRequests` with UseStatusResources.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from rebalancer.kube.snapshot.records import Container, ContainerStatus, Count, Pod, PodSpec, PodStatus, Resources
from rebalancer.model.cluster.releases import RESIZES_AS_TOTALS
from rebalancer.model.notation.decoding import json_decoder
from rebalancer.model.notation.quantity import parse_quantity

PENDING, IN_PROGRESS, INFEASIBLE = "PodResizePending", "PodResizeInProgress", "Infeasible"
HUGE_PAGES = "hugepages-"

Amounts = Mapping[str, str]


class _Allocated(msgspec.Struct):
    requests: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class _Reported:
    """What the kubelet reports; None where it doesn't."""

    actual: Amounts | None
    allocated: Amounts | None
    has_resources: bool
    """Whether it reports any, be they limits only."""

    @classmethod
    def of(cls, status: ContainerStatus | PodStatus) -> "_Reported":
        """Raises DecodeError."""
        actual = json_decoder(Resources).decode(status.resources) if len(status.resources) else None
        wrapped = b'{"requests":%b}' % (bytes(status.allocated_resources) or b"null")
        allocated = json_decoder(_Allocated).decode(wrapped)
        return cls(None if actual is None else actual.requests, allocated.requests, actual is not None)


def counted_spec(pod: Pod, minor: int) -> tuple[PodSpec, list[Count] | None]:
    """The pod's spec with the requests that count; and the counts of its containers of which the largest holds, or None
    where it is that of this spec. The same spec, and None, for a pod that was never resized, as nearly all: of one with
    overhead the kubelet's totals have it too, and the scheduler adds it to them once more."""
    if pod.metadata.generation == 1 and not pod.spec.overhead:
        return pod.spec, None
    conditions = [each for each in pod.status.conditions or () if each.type in (PENDING, IN_PROGRESS)]
    if not (pod.metadata.generation or conditions):  # an API server that doesn't count generations of pods
        return pod.spec, None
    infeasible = any(each.type == PENDING and each.reason == INFEASIBLE for each in conditions)
    spec = _with_pod_level(pod, infeasible=infeasible, only_known=minor < RESIZES_AS_TOTALS)
    if minor >= RESIZES_AS_TOTALS:
        return spec, _counts(pod, infeasible=infeasible)
    status = pod.status
    containers = _counted(spec.containers, status.container_statuses, infeasible=infeasible)
    # of the others only sidecars can be resized
    inits = _counted(spec.init_containers, status.init_container_statuses, infeasible=infeasible, sidecars=True)
    if containers == spec.containers and inits == spec.init_containers:
        return spec, None
    return msgspec.structs.replace(spec, containers=containers, init_containers=inits), None


# ---- the pod as a whole


def _with_pod_level(pod: Pod, *, infeasible: bool, only_known: bool) -> PodSpec:
    """The spec with the pod-level requests that count. `only_known`: of those that it requests itself."""
    spec, status = pod.spec, pod.status
    own = spec.resources.requests if spec.resources is not None else None
    if spec.resources is None or not own or not len(status.resources):
        return spec
    try:
        reported = _Reported.of(status)
        known = [reported.actual or {}, reported.allocated or {}]
        requests = _largest(known if infeasible else [own, *known])
    except (msgspec.DecodeError, ValueError):
        return spec  # the figures of the spec, which are checked with it
    counted = {
        name: amount
        for name, amount in requests.items()
        if name in own or (not only_known and (name in ("cpu", "memory") or name.startswith(HUGE_PAGES)))
    }
    if only_known:
        counted = {name: counted.get(name, "0") for name in own}
    if counted == own:
        return spec
    return msgspec.structs.replace(spec, resources=msgspec.structs.replace(spec.resources, requests=counted))


# ---- totals


def _counts(pod: Pod, *, infeasible: bool) -> list[Count] | None:
    spec, status = pod.spec, pod.status
    by_name = {
        each.name: each for each in (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    }
    try:
        reported = {name: _Reported.of(each) for name, each in by_name.items()}
        whole = _Reported.of(status)
        _check(amounts for each in (*reported.values(), whole) for amounts in (each.actual, each.allocated))
    except (msgspec.DecodeError, ValueError):
        return None  # the figures of the spec, which are checked with it

    def count(of: Callable[[Amounts, _Reported | None], Amounts]) -> Count:
        def amounts(container: Container) -> dict[str, str]:
            own = container.resources.requests if container.resources is not None else None
            return dict(of(own or {}, reported.get(container.name)))

        inits = spec.init_containers or ()
        return Count(
            mains=[amounts(each) for each in spec.containers or ()],
            inits=[(amounts(each), each.restart_policy == "Always") for each in inits],
        )

    def allocated(own: Amounts, found: _Reported | None) -> Amounts:
        if found is not None and found.allocated is not None:
            return found.allocated
        return {} if infeasible else own

    def actual(own: Amounts, found: _Reported | None) -> Amounts:
        return found.actual if found is not None and found.actual is not None else allocated(own, found)

    by_spec = count(lambda own, _: own)
    if whole.allocated is not None and whole.actual is not None:
        counts = [Count(whole=dict(whole.allocated)), Count(whole=dict(whole.actual))]
    else:
        counts = [count(allocated), count(actual)]
    if not infeasible:
        counts.insert(0, by_spec)
    different = [each for at, each in enumerate(counts) if each not in counts[:at]]
    return None if different == [by_spec] else different


def _check(amounts: Iterable[Amounts | None]) -> None:
    """Raises ValueError for something that is no quantity."""
    for each in amounts:
        for text in (each or {}).values():
            parse_quantity(text)


# ---- container by container


def _counted(
    containers: list[Container] | None,
    statuses: Sequence[ContainerStatus] | None,
    *,
    infeasible: bool,
    sidecars: bool = False,
) -> list[Container] | None:
    if not containers:
        return containers
    by_name = {each.name: each for each in statuses or ()}
    return [
        each
        if (found := by_name.get(each.name)) is None or (sidecars and each.restart_policy != "Always")
        else _with_status(each, found, infeasible=infeasible)
        for each in containers
    ]


def _with_status(container: Container, status: ContainerStatus, *, infeasible: bool) -> Container:
    own = container.resources or Resources()
    try:
        reported = _Reported.of(status)
        if not reported.has_resources:
            return container
        known = [reported.actual or {}, reported.allocated or {}]
        requests = _largest(known if infeasible else [own.requests or {}, *known])
    except (msgspec.DecodeError, ValueError):
        return container  # the figures of the spec, which are checked with it
    if requests == (own.requests or {}):
        return container
    return msgspec.structs.replace(container, resources=msgspec.structs.replace(own, requests=requests))


def _largest(amounts: Iterable[Amounts]) -> dict[str, str]:
    """Of each resource the largest quantity; the first of equal ones. Raises ValueError for something that is none."""
    out: dict[str, str] = {}
    for each in amounts:
        for name, text in each.items():
            if name not in out or parse_quantity(text) > parse_quantity(out[name]):
                out[name] = text
    return out
