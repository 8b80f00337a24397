"""Containers as the scheduler counts them while a pod is resized in place.

Of each container the largest counts of what its spec requests, what the kubelet has allocated and what its cgroup has:
until a smaller size is in force, its room isn't free. The spec of a resize that the node can never carry out
(Infeasible) doesn't count. Source: Kubernetes v1.36, component-helpers `resource.PodRequests` with
UseStatusResources.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rebalancer.kube.snapshot.records import Container, ContainerStatus, Pod, PodSpec, Resources
from rebalancer.model.notation.decoding import json_decoder
from rebalancer.model.notation.quantity import parse_quantity

PENDING, IN_PROGRESS, INFEASIBLE = "PodResizePending", "PodResizeInProgress", "Infeasible"


class _Allocated(msgspec.Struct):
    requests: dict[str, str] | None = None


def counted_spec(pod: Pod) -> PodSpec:
    """The pod's spec with the requests that count. The same object for a pod that was never resized, as nearly all."""
    if pod.metadata.generation == 1:
        return pod.spec
    conditions = [each for each in pod.status.conditions or () if each.type in (PENDING, IN_PROGRESS)]
    if not (pod.metadata.generation or conditions):  # an API server that doesn't count generations of pods
        return pod.spec
    infeasible = any(each.type == PENDING and each.reason == INFEASIBLE for each in conditions)
    spec, status = pod.spec, pod.status
    containers = _counted(spec.containers, status.container_statuses, infeasible=infeasible)
    # of the others only sidecars can be resized
    inits = _counted(spec.init_containers, status.init_container_statuses, infeasible=infeasible, sidecars=True)
    if containers == spec.containers and inits == spec.init_containers:
        return spec
    return msgspec.structs.replace(spec, containers=containers, init_containers=inits)


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
        actual = json_decoder(Resources).decode(status.resources) if len(status.resources) else None
        if actual is None:  # the kubelet doesn't report them
            return container
        wrapped = b'{"requests":%b}' % (bytes(status.allocated_resources) or b"null")
        allocated = json_decoder(_Allocated).decode(wrapped)
        known = [actual.requests or {}, allocated.requests or {}]
        requests = _largest(known if infeasible else [own.requests or {}, *known])
    except (msgspec.DecodeError, ValueError):
        return container  # the figures of the spec, which are checked with it
    if requests == (own.requests or {}):
        return container
    return msgspec.structs.replace(container, resources=msgspec.structs.replace(own, requests=requests))


def _largest(amounts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Of each resource the largest quantity; the first of equal ones. Raises ValueError for something that is none."""
    out: dict[str, str] = {}
    for each in amounts:
        for name, text in each.items():
            if name not in out or parse_quantity(text) > parse_quantity(out[name]):
                out[name] = text
    return out
