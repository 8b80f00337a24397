"""What a pod's containers request, as the scheduler adds it up.

Source: KEP-753 (sidecars) and KEP-2837 (pod-level resources); component-helpers `resource.PodRequests`; the scored
figures are `PodRequests` with `NonMissingContainerRequests` of pkg/scheduler/util/pod_resources.go. Of a pod that is
resized in place the containers are those of `resizes.py`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rebalancer.kube.snapshot.records import Container, Count, Resources
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
    counts: Sequence[Count] | None = None,
) -> Requests:
    """The larger of the running containers' sum and each init container's, sidecars counted, plus overhead. `counts`:
    as a `Template`'s.

    Raises ValueError for something that is no quantity, or out of range.
    """
    if counts is None:
        counts = [
            Count(
                mains=[_requested(each) for each in containers],
                inits=[(_requested(each), each.restart_policy == "Always") for each in init_containers],
            )
        ]
    parsed = [_Parsed.of(each) for each in counts]
    whole = _parsed(pod_level.requests if pod_level else None)
    above = _parsed(overhead)
    totals = _total(parsed, {}, whole, above)
    scored = _total(parsed, _SCORED_DEFAULTS, whole, above)
    arriving = None
    if whole:
        sums = _total(parsed, _SCORED_DEFAULTS, {}, above)
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


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A `Count` in numbers."""

    mains: list[Amounts]
    inits: list[tuple[Amounts, bool]]
    whole: Amounts | None

    @classmethod
    def of(cls, count: Count) -> "_Parsed":
        """Raises ValueError."""
        return cls(
            [_parsed(each) for each in count.mains],
            [(_parsed(each), is_sidecar) for each, is_sidecar in count.inits],
            None if count.whole is None else _parsed(count.whole),
        )

    def total(self, defaults: Amounts) -> Amounts:
        """Of all containers. A container that requests nothing of a resource in `defaults` counts with that much; a
        request of zero is a request."""
        if self.whole is not None:
            return self.whole
        mains, inits = self.mains, self.inits
        if defaults:
            mains = [defaults | each for each in mains]
            inits = [(defaults | each, is_sidecar) for each, is_sidecar in inits]
        return _of_containers(mains, inits)


def _total(counts: Sequence[_Parsed], defaults: Amounts, whole: Amounts, above: Amounts) -> Amounts:
    """The largest of the counts; a pod-level request (`whole`) replaces that."""
    first, *others = (each.total(defaults) for each in counts)
    total = dict(first)
    for other in others:
        for name, amount in other.items():
            total[name] = max(total.get(name, 0.0), amount)
    total.update(whole)
    _add(total, above)
    return total


def _of_containers(mains: list[Amounts], inits: list[tuple[Amounts, bool]]) -> Amounts:
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
    return running


def _add(total: Amounts, more: Mapping[str, float]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0.0) + amount


def _requested(container: Container) -> dict[str, str]:
    return (container.resources.requests if container.resources else None) or {}


def _parsed(amounts: Mapping[str, str] | None) -> Amounts:
    return {name: _amount(f"request of {name}", text) for name, text in amounts.items()} if amounts else {}


def _amount(what: str, text: str) -> float:
    try:
        return readable(text, scale=1000.0 if what.endswith(" cpu") else 1.0)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
