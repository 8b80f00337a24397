"""Each value of the chart by itself: setting it changes what is rendered, and nothing but objects comes out."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from tests.deploy.readers.manifests import CHART, Object
from tests.deploy.test_chart import rendered

SEVERAL = {"replicas": 2, "database": {"kind": "postgresql"}}
INGRESS = {"ingress": {"enabled": True, "hosts": [{"host": "a.example", "paths": [{"path": "/"}]}]}}
CRONJOB = {"kind": "CronJob"}
BEARER = {"webhook": {"bearerToken": {"secretName": "s"}}}
BASIC = {"webhook": {"basicAuth": {"secretName": "s"}}}
MONITOR = {"monitoring": {"serviceMonitor": {"enabled": True}}}
RULE = {"monitoring": {"prometheusRule": {"enabled": True}}}
DASHBOARD = {"monitoring": {"dashboard": {"enabled": True}}}
NAMED = [{"name": "extra", "value": "1"}]
POLICY = {**yaml.safe_load((CHART / "files" / "policy.yaml").read_text()), "cluster": "other"}

NOTIFYING = {**POLICY, "notifications": {"receivers": [{"name": "a", "alertmanager": {"url": "http://am:9093"}}]}}

VALUES: dict[str, tuple[Any, dict[str, Any]]] = {
    "admissionPolicy.enabled": (False, {}),
    "affinity": ({"podAntiAffinity": {}}, {}),
    "approval.key.secretKey": ("k", {"approval": {"key": {"secretName": "s"}}}),
    "approval.key.secretName": ("s", {}),
    "approval.url": ("https://rebalancer.example", {}),
    "cleanup.enabled": (False, {"dryRun": False}),
    "commonLabels": ({"a": "b"}, {}),
    "cronJob.activeDeadlineSeconds": (600, CRONJOB),
    "cronJob.failedJobsHistoryLimit": (1, CRONJOB),
    "cronJob.schedule": ("0 * * * *", CRONJOB),
    "cronJob.startingDeadlineSeconds": (60, CRONJOB),
    "cronJob.successfulJobsHistoryLimit": (1, CRONJOB),
    "cronJob.suspend": (True, CRONJOB),
    "cronJob.timeZone": ("Europe/Berlin", CRONJOB),
    "dashboard": ("open", {}),
    "database.kind": ("postgresql", {}),
    "database.postgresql.secretKey": ("uri", SEVERAL),
    "database.postgresql.secretName": ("pg", SEVERAL),
    "database.sqlite.existingClaim": ("claim", {}),
    "database.sqlite.persistent": (False, {}),
    "database.sqlite.size": ("9Gi", {}),
    "database.sqlite.storageClassName": ("fast", {}),
    "dnsConfig": ({"options": [{"name": "ndots", "value": "1"}]}, {}),
    "dnsPolicy": ("Default", {}),
    "dryRun": (False, {}),
    "extraArgs": (["--context", "blue"], {}),
    "extraEnv": (NAMED, {}),
    "extraVolumeMounts": ([{"name": "tmp", "mountPath": "/var/tmp"}], {}),
    "extraVolumes": ([{"name": "extra", "emptyDir": {}}], {}),
    "fullnameOverride": ("other", {}),
    "image.digest": (f"sha256:{'0' * 64}", {}),
    "image.pullPolicy": ("Always", {}),
    "image.registry": ("mirror.example/proxy", {}),
    "image.repository": ("other", {}),
    "image.tag": ("other", {}),
    "imagePullSecrets": ([{"name": "pull"}], {}),
    "ingress.annotations": ({"a": "b"}, INGRESS),
    "ingress.className": ("nginx", INGRESS),
    "ingress.enabled": (False, INGRESS),
    "ingress.hosts": ([{"host": "b.example", "paths": [{"path": "/"}]}], INGRESS),
    "ingress.tls": ([{"secretName": "s"}], INGRESS),
    "kind": ("CronJob", {}),
    "livenessProbe": ({"timeoutSeconds": 9}, {}),
    "logLevel": ("debug", {}),
    "monitoring.dashboard.enabled": (True, {}),
    "monitoring.dashboard.labels": ({"a": "b"}, DASHBOARD),
    "monitoring.prometheusRule.enabled": (True, {}),
    "monitoring.prometheusRule.hotNodes.for": ("9m", RULE),
    "monitoring.prometheusRule.hotNodes.high": (90, RULE),
    "monitoring.prometheusRule.hotNodes.target": (60, RULE),
    "monitoring.prometheusRule.labels": ({"a": "b"}, RULE),
    "monitoring.prometheusRule.runbookUrl": ("https://code.example/main", RULE),
    "monitoring.serviceMonitor.enabled": (True, {}),
    "monitoring.serviceMonitor.interval": ("9s", MONITOR),
    "monitoring.serviceMonitor.labels": ({"a": "b"}, MONITOR),
    "monitoring.serviceMonitor.metricRelabelings": ([{"action": "labeldrop", "regex": "code"}], MONITOR),
    "monitoring.serviceMonitor.relabelings": ([{"targetLabel": "cluster", "replacement": "a"}], MONITOR),
    "monitoring.serviceMonitor.tlsConfig": ({"insecureSkipVerify": True}, MONITOR),
    "nameOverride": ("other", {}),
    "networkPolicy.alertmanagerPorts": ([9094], {"policy": NOTIFYING}),
    "networkPolicy.apiServerPorts": ([16443], {}),
    "networkPolicy.databasePorts": ([6432], SEVERAL),
    "networkPolicy.dnsPorts": ([5353], {}),
    "networkPolicy.enabled": (False, {}),
    "networkPolicy.ingressFrom": ([], {}),
    "networkPolicy.prometheusPorts": ([9091], {}),
    "nodeSelector": ({"a": "b"}, {}),
    "notificationsSecretName": ("slack", {}),
    "podAnnotations": ({"a": "b"}, {}),
    "podDisruptionBudget.enabled": (False, SEVERAL),
    "podDisruptionBudget.maxUnavailable": ("50%", SEVERAL),
    "podLabels": ({"a": "b"}, {}),
    "podSecurityContext": ({"runAsUser": 1000}, {}),
    "policy": (POLICY, {}),
    "priorityClassName": ("high", {}),
    "prometheusSecretName": ("s", {}),
    "rbac.create": (False, {}),
    "readinessProbe": ({"timeoutSeconds": 9}, {}),
    "replicas": (3, SEVERAL),
    "resources": ({"limits": {"memory": "9Gi"}}, {}),
    "runtimeClassName": ("gvisor", {}),
    "schedulerConfiguration": ("kind: KubeSchedulerConfiguration", {}),
    "securityContext": ({"runAsUser": 1000}, {}),
    "service.annotations": ({"a": "b"}, {}),
    "service.port": (80, {}),
    "service.type": ("LoadBalancer", {}),
    "serviceAccount.annotations": ({"a": "b"}, {}),
    "serviceAccount.create": (False, {"serviceAccount": {"name": "theirs"}}),
    "serviceAccount.name": ("other", {}),
    "startupProbe": ({"timeoutSeconds": 9}, {}),
    "terminationGracePeriodSeconds": (90, {}),
    "tolerations": ([{"operator": "Exists"}], {}),
    "topologySpreadConstraints": ([{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}], {}),
    "webhook.basicAuth.secretKey": ("k", BASIC),
    "webhook.basicAuth.secretName": ("s", {}),
    "webhook.bearerToken.secretKey": ("k", BEARER),
    "webhook.bearerToken.secretName": ("s", {}),
    "webhook.tlsSecretName": ("s", {}),
}
"""Value -> (another one, what it needs beside it)"""


def with_values(values: dict[str, Any], folder: Path, *flags: str) -> list[Object]:
    (folder / "values.yaml").write_text(yaml.safe_dump(values))
    return rendered("--values", str(folder / "values.yaml"), *flags)


@cache
def without_change(values: str) -> list[Object]:
    """Rendered with some of the few JSON documents that stand beside a value: once for each."""
    with TemporaryDirectory() as folder:
        return with_values(json.loads(values), Path(folder))


def test_the_table_has_every_value_of_the_charts_page() -> None:
    page = (CHART / "README.md").read_text().partition("\n## Values\n")[2]
    listed = {line.split(" | ")[0].removeprefix("| ") for line in page.splitlines() if line.count(" | ") >= 3}
    # `enabled` is for a parent chart, which has a test of its own
    assert listed - {"Key", "enabled"} == VALUES.keys()


@pytest.mark.parametrize("name", VALUES)
def test_each_value_changes_what_is_rendered(name: str, tmp_path: Path) -> None:
    value, beside = VALUES[name]
    before = without_change(json.dumps(beside))
    # helm's own set is last: it wins over the file
    after = with_values(beside, tmp_path, "--set-json", f"{name}={json.dumps(value)}")
    assert after != before
    for each in after:
        assert each.keys() >= {"apiVersion", "kind", "metadata"}
