"""Services, as far as kube-scheduler reads them: their selectors decide the default spreading of pods."""

from collections.abc import Iterable, Mapping

from rebalancer.kube.snapshot.quarantine import whole
from rebalancer.kube.snapshot.records import Meta, Object, Wire

Selector = tuple[str, Mapping[str, str]]
"""Namespace, and the labels of the pods."""


class ServiceSpec(Wire, frozen=True):
    selector: dict[str, str] | None = None


class ServiceObject(Object, frozen=True):
    """A Service."""

    metadata: Meta
    spec: ServiceSpec = ServiceSpec()


def selector_of(service: ServiceObject) -> Selector:
    """Empty labels for a Service that selects nothing. Raises ValueError where it could not be read in full."""
    whole(service)
    return service.metadata.namespace, service.spec.selector or {}


def by_namespace(selectors: Iterable[Selector]) -> dict[str, tuple[Mapping[str, str], ...]]:
    """Namespace -> the selectors of its Services, in order; of equal ones the first."""
    out: dict[str, dict[tuple[tuple[str, str], ...], Mapping[str, str]]] = {}
    for namespace, labels in selectors:
        if labels:
            out.setdefault(namespace, {}).setdefault(tuple(sorted(labels.items())), labels)
    return {namespace: tuple(found[key] for key in sorted(found)) for namespace, found in sorted(out.items())}
