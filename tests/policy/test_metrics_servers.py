"""Prometheus among the Services of a cluster, by the names that charts and operators give them."""

import pytest

from rebalancer.policy.metrics_servers import COMPONENT, NAME, ClusterService, found_servers


def a_service(name: str, *ports: int, namespace: str = "monitoring", **labels: str) -> ClusterService:
    return ClusterService(namespace=namespace, name=name, ports=ports, labels=labels)


OPERATED = {"operated-prometheus": "true"}


@pytest.mark.parametrize(
    ("service", "url"),
    [
        (
            a_service("kps-prometheus", 9090, 8080, app="kube-prometheus-stack-prometheus"),
            "kps-prometheus.monitoring.svc:9090",
        ),
        (a_service("prometheus-k8s", 9090, 8080), "prometheus-k8s.monitoring.svc:9090"),
        (a_service("mine-prometheus-server", 80), "mine-prometheus-server.monitoring.svc:80"),
        (a_service("prom", 80, **{NAME: "prometheus", COMPONENT: "server"}), "prom.monitoring.svc:80"),
        (a_service("prometheus-operated", 9090, **OPERATED), "prometheus-operated.monitoring.svc:9090"),
        (a_service("vmsingle-main", 8429), "vmsingle-main.monitoring.svc:8429"),
        (
            a_service("vmselect-main", 8481, **{NAME: "vmselect"}),
            "vmselect-main.monitoring.svc:8481/select/0/prometheus",
        ),
    ],
)
def test_a_service_that_serves_the_prometheus_api_is_found(service: ClusterService, url: str) -> None:
    others = [
        a_service("alertmanager-operated", 9093),
        a_service("prometheus-node-exporter", 9100, **{NAME: "prometheus-node-exporter"}),
        a_service("prometheus-operator", 443),
        a_service("kubernetes", 443, namespace="default"),
    ]
    (found,) = found_servers([*others, service])
    assert found.url == f"http://{url}"
    assert found.port_forward == f"kubectl -n monitoring port-forward service/{service.name} 9090:{found.port}"


def test_the_service_of_a_stack_comes_before_that_of_its_operator() -> None:
    services = [
        a_service("prometheus-operated", 9090, **OPERATED),
        a_service("kps-prometheus", 9090, app="kube-prometheus-stack-prometheus"),
    ]
    assert [each.service.name for each in found_servers(services)] == ["kps-prometheus", "prometheus-operated"]
