"""Grafana's dashboard: it names what exists, and Prometheus understands it."""

import json
import re
from pathlib import Path

import yaml

from rebalancer.web.metrics import Metrics
from tests.deploy.programs import promtool, run
from tests.deploy.readers.manifests import CHART, chart, find
from tests.deploy.readers.promql import named, served

DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text())


def queries() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_the_dashboard_names_only_metrics_that_exist() -> None:
    # the usual process_ metrics come from the client library
    usual = {each.name for each in Metrics().registry.collect()}
    known = served().keys() | usual | {f"{name}_total" for name in usual}
    for query in queries():
        found = named(query)
        assert found, query
        assert found <= known, query


def test_the_dashboard_groups_by_labels_that_the_metrics_have() -> None:
    labels = served()
    for query in queries():
        grouped = {label.strip() for group in re.findall(r"\bby\s*\(([^)]*)\)", query) for label in group.split(",")}
        for name in named(query) & labels.keys():
            assert grouped <= labels[name] | {"version"}, query


def test_the_dashboards_panels_have_a_place_and_an_id_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_the_chart_ships_the_dashboard_whole() -> None:
    held = find(chart("monitoring"), "ConfigMap", "rebalancer-dashboard")["data"]["rebalancer.json"]
    assert json.loads(held) == DASHBOARD


def test_promtool_understands_the_dashboards_queries(tmp_path: Path) -> None:
    # Grafana's own variable; the dashboard's stand in quotes
    plain = [each.replace("$__rate_interval", "5m") for each in queries()]
    path = tmp_path / "rules.yaml"
    rules = [{"record": f"panel:{number}:x", "expr": expr} for number, expr in enumerate(plain)]
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    run(promtool(), "check", "rules", path)
