"""Recording rules and alerts: they name what exists, mean what the program means, and fire when they should."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.daemon import telemetry as told
from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.reason import Reason
from rebalancer.prometheus.promql.queries import default_freshness_query, default_node_query, default_pod_query
from rebalancer.web.alerts import Ignored
from tests.deploy.programs import promtool, run
from tests.deploy.readers.manifests import CHART, KUSTOMIZE, ROOT, chart, find
from tests.deploy.readers.promql import named, served

SHIPPED = KUSTOMIZE / "components" / "monitoring" / "prometheusrule.yaml"
GROUPS: list[dict[str, Any]] = yaml.safe_load(SHIPPED.read_text())["spec"]["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
RECORDED = {rule["record"]: " ".join(rule["expr"].split()) for rule in RULES if "record" in rule}
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
CASES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "alerts.yaml").read_text())
NOT_OURS = {"node_cpu_seconds_total", "container_cpu_usage_seconds_total"}


@pytest.fixture
def rule_file(tmp_path: Path) -> Path:
    """As Prometheus reads it, without the operator's envelope."""
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": GROUPS}, sort_keys=False))
    return path


def test_promtool_takes_the_rules(rule_file: Path) -> None:
    said = run(promtool(), "check", "rules", rule_file)
    assert f"{len(RULES)} rules found" in said


@pytest.mark.parametrize("variant", ["monitoring", "everything"])
def test_promtool_takes_the_charts_rules(variant: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(find(chart(variant), "PrometheusRule")["spec"]))
    assert f"{len(RULES)} rules found" in run(promtool(), "check", "rules", path)


def test_the_recorded_queries_are_the_programs_own() -> None:
    assert RECORDED["rebalancer:node_cpu_busy_cores:rate5m"] == default_node_query(label="instance", window="5m")
    assert RECORDED["rebalancer:node_cpu:scraped_at"] == default_freshness_query(label="instance")
    assert RECORDED["rebalancer:pod_cpu_cores:rate5m"] == default_pod_query(
        namespace="namespace", pod="pod", node="node", window="5m"
    )


def test_the_policies_hint_names_what_is_recorded() -> None:
    hint = (CHART / "files" / "policy.yaml").read_text()
    assert set(re.findall(r'"(rebalancer:[a-z0-9_:]+)"', hint)) == RECORDED.keys() - {"rebalancer:node_cpus:count"}


def test_the_alert_for_hot_nodes_is_the_documented_one() -> None:
    (block,) = [
        each
        for each in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "webhook.md").read_text(), re.S)
        if "kind: PrometheusRule" in each
    ]
    (documented,) = yaml.safe_load(block)["spec"]["groups"][0]["rules"]
    ours = ALERTS["NodeCPUHigh"]
    assert {name: value for name, value in ours.items() if name != "expr"} == {
        name: value for name, value in documented.items() if name != "expr"
    }
    # how CPU is counted is the next test's; here the mark
    assert documented["expr"].endswith("> 75")
    assert ours["expr"].endswith("> 75")


def test_every_metric_that_rules_and_alerts_name_exists() -> None:
    known = served().keys() | RECORDED.keys() | NOT_OURS
    for rule in RULES:
        found = named(rule["expr"])
        assert found, rule
        assert found <= known, rule


def test_every_value_of_a_label_that_alerts_ask_for_can_come() -> None:
    asked = {
        (name, value)
        for rule in RULES
        for name, values in re.findall(r'rebalancer_\w+\{(\w+)=~?"([^"]+)"', rule["expr"])
        for value in values.split("|")
    }
    results = {str(value) for name, value in vars(told).items() if name.startswith("_RESULT_")}
    can_come: dict[str, set[str]] = {
        "result": results | {"success", "failure"},
        "code": set(map(str, Reason)),
        "outcome": set(map(str, Outcome)),
        "reason": set(map(str, Ignored)),
    }
    assert asked
    for name, value in asked:
        assert value in can_come[name], (name, value)


def test_every_alert_says_what_it_means_and_how_bad_it_is() -> None:
    for name, alert in ALERTS.items():
        assert alert["labels"]["severity"] in ("warning", "critical"), name
        assert alert["annotations"]["summary"], name
        if name != "NodeCPUHigh":
            assert name.startswith("Rebalancer")
            assert alert["annotations"]["description"], name


# ---- what they do: promtool's own clock


def series(text: str, values: str) -> dict[str, str]:
    return {"series": text, "values": values}


def node(instance: str, **rates: float) -> list[dict[str, str]]:
    """Two CPUs of a node, scraped every 30 s; `rates` are shares of each CPU by mode."""
    modes = {"idle": 1.0 - sum(rates.values()), **rates}
    return [
        series(f'node_cpu_seconds_total{{instance="{instance}",cpu="{cpu}",mode="{mode}"}}', f"0+{30 * share:g}x60")
        for cpu in range(2)
        for mode, share in modes.items()
    ]


def firing(alert: str, at: str, **labels: str) -> dict[str, Any]:
    """The alert fires once, with these labels besides its own."""
    return {"eval_time": at, "alertname": alert, "exp_alerts": [{"exp_labels": {**ALERTS[alert]["labels"], **labels}}]}


def check(rule_file: Path, tests: list[dict[str, Any]]) -> None:
    """Let promtool run the tests. It compares annotations too, so they are taken out of the rules."""
    groups = json.loads(json.dumps(GROUPS))
    for group in groups:
        for rule in group["rules"]:
            rule.pop("annotations", None)
    rule_file.write_text(yaml.safe_dump({"groups": groups}))
    path = rule_file.with_name("tests.yaml")
    path.write_text(yaml.safe_dump({"rule_files": [rule_file.name], "evaluation_interval": "30s", "tests": tests}))
    run(promtool(), "test", "rules", path)


def test_a_node_is_hot_by_what_it_uses_and_not_by_waiting_for_disks(rule_file: Path) -> None:
    nodes = (
        node("hot:9100", user=0.6, system=0.16)
        + node("waits:9100", user=0.3, iowait=0.5, steal=0.1)
        + node("cool:9100", user=0.74)
    )
    check(
        rule_file,
        [
            {
                "interval": "30s",
                "input_series": nodes,
                "alert_rule_test": [
                    firing("NodeCPUHigh", "20m", instance="hot:9100"),
                    {"eval_time": "4m", "alertname": "NodeCPUHigh", "exp_alerts": []},
                ],
                "promql_expr_test": [
                    {
                        "expr": "round(rebalancer:node_cpu_busy_cores:rate5m, 0.01)",
                        "eval_time": "20m",
                        "exp_samples": [
                            {"labels": f'{{instance="{name}:9100"}}', "value": value}
                            for name, value in (("hot", 1.52), ("waits", 0.6), ("cool", 1.48))
                        ],
                    },
                    {
                        "expr": 'rebalancer:node_cpu:scraped_at{instance="hot:9100"}',
                        "eval_time": "20m",
                        "exp_samples": [
                            {"labels": 'rebalancer:node_cpu:scraped_at{instance="hot:9100"}', "value": 1200}
                        ],
                    },
                ],
            }
        ],
    )


def test_every_alert_of_ours_is_tried() -> None:
    assert [case["alert"] for case in CASES] == [name for name in ALERTS if name != "NodeCPUHigh"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["alert"])
def test_an_alert_fires_for_its_reason_and_not_before(case: dict[str, Any], rule_file: Path) -> None:
    given = {name: values.replace("NaN*", " ".join(["NaN"] * 100)) for name, values in case["series"].items()}
    check(
        rule_file,
        [
            {
                "interval": "30s",
                "input_series": [series(name, values) for name, values in given.items()],
                "alert_rule_test": [
                    {"eval_time": case["quiet"], "alertname": case["alert"], "exp_alerts": []},
                    firing(case["alert"], case["fires"], **case.get("labels", {})),
                ],
            }
        ],
    )
