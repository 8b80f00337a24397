"""Servers of the Prometheus API among a cluster's Services, by the names and labels that charts and operators give
them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

NAME, COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterService:
    """A Service of Kubernetes."""

    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    """Services that one installation makes."""

    ports: tuple[int, ...]
    """In this order."""
    labels: Mapping[str, str] = field(default_factory=dict)
    ends: str = ""
    """End of the name."""
    begins: str = ""
    path: str = ""

    def matches(self, service: ClusterService) -> bool:
        """By its labels, or by its name where the pattern has a beginning or an end."""
        if self.labels:
            return all(service.labels.get(name) == value for name, value in self.labels.items())
        return service.name.startswith(self.begins) and service.name.endswith(self.ends)


PATTERNS: Final = (
    _Pattern(labels={"app": "kube-prometheus-stack-prometheus"}, ports=(9090,)),
    # kube-prometheus, from its manifests
    _Pattern(begins="prometheus-k8s", ends="prometheus-k8s", ports=(9090,)),
    # the chart prometheus-community/prometheus
    _Pattern(labels={NAME: "prometheus", COMPONENT: "server"}, ports=(80, 9090)),
    _Pattern(ends="prometheus-server", ports=(80, 9090)),
    _Pattern(labels={NAME: "vmsingle"}, ports=(8428, 8429)),
    _Pattern(labels={NAME: "victoria-metrics-single"}, ports=(8428,)),
    _Pattern(labels={NAME: "vmselect"}, ports=(8481,), path="/select/0/prometheus"),
    _Pattern(begins="vmsingle-", ports=(8428, 8429)),
    _Pattern(begins="vmselect-", ports=(8481,), path="/select/0/prometheus"),
    # of the operator, for each Prometheus; the same data as above
    _Pattern(labels={"operated-prometheus": "true"}, ports=(9090,)),
    _Pattern(begins="prometheus", ends="prometheus", ports=(9090, 80)),
)
"""The most specific first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundServer:
    """A Service that answers the Prometheus API."""

    service: ClusterService
    port: int
    path: str = ""

    @property
    def url(self) -> str:
        """URL inside the cluster."""
        return f"http://{self.service.name}.{self.service.namespace}.svc:{self.port}{self.path}"

    @property
    def port_forward(self) -> str:
        """The command with which it is reached from outside, as 127.0.0.1:9090."""
        return f"kubectl -n {self.service.namespace} port-forward service/{self.service.name} 9090:{self.port}"

    @property
    def forwarded_url(self) -> str:
        """Its URL then."""
        return f"http://127.0.0.1:9090{self.path}"


def found_servers(services: Iterable[ClusterService]) -> list[FoundServer]:
    """Those of the most specific pattern first, each Service once."""
    rest, found = sorted(services, key=lambda each: (each.namespace, each.name)), []
    for pattern in PATTERNS:
        for service in [each for each in rest if pattern.matches(each)]:
            port = next((each for each in pattern.ports if each in service.ports), None)
            if port is not None:
                found.append(FoundServer(service=service, port=port, path=pattern.path))
                rest.remove(service)
    return found
