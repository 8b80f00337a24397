"""What a pod's containers request, as the scheduler adds it up.

Source: KEP-753 (sidecars) and KEP-2837 (pod-level resources); component-helpers `resource.PodRequests`; the scored
figures are `PodRequests` with `NonMissingContainerRequests` of pkg/scheduler/util/pod_resources.go. Of a pod that is
resized in place the containers are those of `resizes.py`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rebalancer.kube.snapshot.records import Container, Resources
from rebalancer.model.cluster.pod_templates import SCORED_DEFAULT_CPU_MILLICORES, SCORED_DEFAULT_MEMORY_BYTES
from rebalancer.model.notation.quantity import readable

Amounts = dict[str, float]
_SCORED_DEFAULTS = {"cpu": SCORED_DEFAULT_CPU_MILLICORES / 1000.0, "memory": SCORED_DEFAULT_MEMORY_BYTES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Effective requests of one pod; `extended` holds every resource besides cpu and memory."""

    cpu_millicores: float
    memory_bytes: float
    cpu_scored_millicores: float
    memory_scored_bytes: float
    scored_on_arrival: tuple[float, float] | None
    """As `PodTemplate`'s."""
    extended: Amounts


NO_REQUESTS = Requests(
    cpu_millicores=0.0,
    memory_bytes=0.0,
    cpu_scored_millicores=0.0,
    memory_scored_bytes=0.0,
    scored_on_arrival=None,
    extended={},
)
"""Of a pod whose requests can't be read."""


def effective_requests(
    *,
    containers: Iterable[Container],
    init_containers: Iterable[Container] = (),
    pod_level: Resources | None = None,
    overhead: Mapping[str, str] | None = None,
) -> Requests:
    """The larger of the running containers' sum and each init container's, sidecars counted, plus overhead.

    Raises ValueError for something that is no quantity, or out of range.
    """
    mains, inits = list(containers), list(init_containers)
    whole = _parsed(pod_level.requests if pod_level else None)
    above = _parsed(overhead)
    totals = _total([_requests(c) for c in mains], [(_requests(c), _is_sidecar(c)) for c in inits], whole, above)
    scored = _total([_scored(c) for c in mains], [(_scored(c), _is_sidecar(c)) for c in inits], whole, above)
    arriving = None
    if whole:
        sums = _total([_scored(c) for c in mains], [(_scored(c), _is_sidecar(c)) for c in inits], {}, above)
        arriving = whole_up(sums.get("cpu", 0.0) * 1000.0), whole_up(sums.get("memory", 0.0))
    return Requests(
        cpu_millicores=whole_up(totals.pop("cpu", 0.0) * 1000.0),
        memory_bytes=whole_up(totals.pop("memory", 0.0)),
        cpu_scored_millicores=whole_up(scored.get("cpu", 0.0) * 1000.0),
        memory_scored_bytes=whole_up(scored.get("memory", 0.0)),
        scored_on_arrival=arriving,
        extended={name: amount for name, amount in totals.items() if amount > 0},
    )


def memory_limits(containers: Sequence[Container], pod_level: Resources | None) -> tuple[float, ...]:
    """As `PodTemplate.memory_limits`; `containers` are those that run. Raises ValueError for something that is no
    quantity, or out of range."""
    of_pod = _memory_limit(pod_level)
    if of_pod is not None:
        return (of_pod,)
    found = [_memory_limit(each.resources) for each in containers]
    known = tuple(each for each in found if each is not None)
    return known if len(known) == len(found) else ()


def _memory_limit(resources: Resources | None) -> float | None:
    """Bytes; None without one. Kubernetes takes a limit of zero for none."""
    limits = resources.limits if resources is not None else None
    amount = 0.0 if limits is None or limits.memory is None else _amount("memory limit", limits.memory)
    return amount if amount > 0 else None


def whole_up(amount: float) -> float:
    """Rounded as `Quantity.Value` and `MilliValue` do; float error of sums is ignored. `amount` must be finite."""
    return float(math.ceil(round(amount, 3)))


def _total(mains: list[Amounts], inits: list[tuple[Amounts, bool]], whole: Amounts, above: Amounts) -> Amounts:
    running: Amounts = {}
    for amounts in mains:
        _add(running, amounts)
    sidecars: Amounts = {}
    starting: Amounts = {}
    for amounts, is_sidecar in inits:
        at_once = dict(sidecars)
        _add(at_once, amounts)
        if is_sidecar:
            _add(running, amounts)
            sidecars = at_once
        for name, amount in at_once.items():
            starting[name] = max(starting.get(name, 0.0), amount)
    for name, amount in starting.items():
        running[name] = max(running.get(name, 0.0), amount)
    # A pod-level request replaces the sum of its containers'.
    running.update(whole)
    _add(running, above)
    return running


def _add(total: Amounts, more: Mapping[str, float]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0.0) + amount


def _requests(container: Container) -> Amounts:
    return _parsed(container.resources.requests if container.resources else None)


def _scored(container: Container) -> Amounts:
    # A request of zero is a request; only a missing one gets the default.
    return _SCORED_DEFAULTS | _requests(container)


def _parsed(amounts: Mapping[str, str] | None) -> Amounts:
    return {name: _amount(f"request of {name}", text) for name, text in amounts.items()} if amounts else {}


def _amount(what: str, text: str) -> float:
    try:
        return readable(text, scale=1000.0 if what.endswith(" cpu") else 1.0)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def _is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"
