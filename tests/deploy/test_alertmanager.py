"""The snippets for Alertmanager: it takes them, they are the documented ones, and they send what we listen for."""

import json
import re
from typing import Any

import yaml

from rebalancer.policy import load_policy
from rebalancer.web.alerts import read_payload, select
from tests.deploy.programs import amtool, run
from tests.deploy.readers.manifests import CHART, DEPLOY, KUSTOMIZE, ROOT, find, overlay
from tests.e2e.servers import delivery

SNIPPET = DEPLOY / "alertmanager" / "alertmanager.yaml"
CONFIG: dict[str, Any] = yaml.safe_load(SNIPPET.read_text())
STACK: dict[str, Any] = yaml.safe_load((DEPLOY / "alertmanager" / "kube-prometheus-stack-values.yaml").read_text())
POLICY = load_policy((CHART / "files" / "policy.yaml").read_bytes(), source="policy.yaml")


def test_alertmanager_takes_the_snippet() -> None:
    assert "SUCCESS" in run(amtool(), "check-config", SNIPPET)


def test_the_snippet_is_the_documented_one() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "webhook.md").read_text(), flags=re.DOTALL)
    (documented,) = [each for each in map(yaml.safe_load, blocks) if "receivers" in each]
    assert documented == CONFIG


def test_the_values_for_kube_prometheus_stack_hold_the_same() -> None:
    assert STACK["alertmanager"]["config"] == CONFIG
    file = CONFIG["receivers"][1]["webhook_configs"][0]["http_config"]["authorization"]["credentials_file"]
    (secret,) = STACK["alertmanager"]["alertmanagerSpec"]["secrets"]
    # where the operator puts the keys of a Secret that is named there
    assert file == f"/etc/alertmanager/secrets/{secret}/token"
    component = yaml.safe_load((KUSTOMIZE / "components" / "webhook" / "deployment.yaml").read_text())
    (volume,) = component["spec"]["template"]["spec"]["volumes"]
    assert volume["secret"]["secretName"] == secret
    assert volume["secret"]["items"][0]["key"] == "token"


def test_the_address_is_that_of_our_service() -> None:
    service = find(overlay("sqlite"), "Service")
    host = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    (webhook,) = CONFIG["receivers"][1]["webhook_configs"]
    assert webhook["url"] == f"http://{host}:{service['spec']['ports'][0]['port']}/api/v1/alerts"


def test_the_alert_that_is_routed_is_the_one_that_the_shipped_policy_takes() -> None:
    (route,) = CONFIG["route"]["routes"]
    (name,) = re.findall(r'alertname = "(\w+)"', route["matchers"][0])
    payload = delivery("node-1", name=name)
    payload["alerts"][0]["labels"] |= {"severity": "warning", "cluster": POLICY.cluster}
    selected = select(read_payload(json.dumps(payload).encode()), POLICY.alerts, POLICY.cluster)
    assert [alert.name for alert in selected.alerts] == [name]


def test_an_episode_does_not_expire_between_two_repetitions() -> None:
    (route,) = CONFIG["route"]["routes"]
    minutes = int(route["repeat_interval"].removesuffix("m"))
    assert minutes * 60 < POLICY.alerts.expire_after
