"""What the operators' pages say is held against chart, code and rules."""

import ast
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rebalancer.bootstrap.process.settings import Settings
from rebalancer.model.reason import Reason
from rebalancer.policy.schema.policy import policy_schema
from rebalancer.store.db.engine import open_engine
from tests.builders import a_policy
from tests.deploy.readers.manifests import (
    CHART,
    KUSTOMIZE,
    ROOT,
    Right,
    find,
    overlay_with,
    rights,
)
from tests.deploy.readers.pages import OPERATIONS, WRITTEN, anchors, blocks, commands, name, sections
from tests.deploy.readers.promql import served
from tests.deploy.test_prometheus_rules import ALERTS, RECORDED
from tests.deploy.test_values import SCHEMA, VALUES, leaves
from tests.real.servers.postgres import PostgresServer

PAGES = {path.stem: path for path in OPERATIONS}
EACH = pytest.mark.parametrize("page", OPERATIONS, ids=lambda page: page.stem)


def spans(page: Path) -> set[str]:
    """What stands between backticks in running text."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return {" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", text)}


# ---- links


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        target, _, heading = link.partition("#")
        if "://" in target:
            assert target.startswith("https://"), link
            continue
        path = (page.parent / target) if target else page
        assert path.exists(), link
        if heading and path.suffix == ".md":
            assert heading in anchors(path), link


def test_every_page_is_linked_from_the_readme() -> None:
    linked = set(re.findall(r"\]\(docs/operations/([\w-]+)\.md\)", (ROOT / "README.md").read_text()))
    assert linked == PAGES.keys()


# ---- rights


def templated(*, dry_run: bool, metrics_server: bool = False, replacement_first: bool = False) -> set[Right]:
    """What the chart's template grants; its conditions are read, not rendered, so no helm is needed."""
    conditions = {
        ".Values.rbac.create": True,
        ".Values.dryRun": dry_run,
        "rebalancer.readsMetricsServer": metrics_server,
        "rebalancer.replacementFirst": replacement_first,
    }
    lines: list[str] = []
    shown = [True]
    for line in (CHART / "templates" / "rbac.yaml").read_text().splitlines():
        control = re.fullmatch(r"\s*\{\{-? (if|end)(.*?)-?\}\}", line)
        if control is None:
            if all(shown):
                # labels are a map; names are text that nobody looks at
                plain = re.sub(r"\{\{-? include \"rebalancer.labels\".*?\}\}", "{}", line)
                lines.append(re.sub(r"\{\{.*?\}\}", "text", plain))
        elif control[1] == "end":
            shown.pop()
        else:
            (value,) = [value for condition, value in conditions.items() if condition in control[2]]
            shown.append(not value if " not " in control[2] else value)
    roles = [each for each in yaml.safe_load_all("\n".join(lines)) if each["kind"] in ("ClusterRole", "Role")]
    assert len(roles) == 2
    return {right for role in roles for right in rights(role)}


def explained() -> dict[Right, str]:
    """Each right of the page, and when it says that it is granted."""
    found: dict[Right, str] = {}
    for row in re.findall(r"^\| `(.+) \|$", PAGES["rbac"].read_text(), flags=re.MULTILINE):
        resource, verbs, granted, why = row.split(" | ")
        assert why.strip()
        plural, _, only = resource.replace("`", "").partition(" named ")
        for verb in re.findall(r"`(\w+)`", verbs):
            right = Right(verb, plural, only)
            assert right not in found, right
            found[right] = granted
    return found


def test_every_right_that_the_chart_grants_is_explained_and_no_other() -> None:
    assert explained().keys() == templated(dry_run=False, metrics_server=True, replacement_first=True)


def test_the_page_says_when_a_right_is_granted() -> None:
    always = templated(dry_run=True)
    live = templated(dry_run=False) - always
    metrics = templated(dry_run=True, metrics_server=True) - always
    surges = templated(dry_run=True, replacement_first=True) - always
    assert live
    assert metrics
    assert surges
    for right, granted in explained().items():
        assert granted == (
            "with `dryRun: false`"
            if right in live
            else "with `usage.source: MetricsServer`"
            if right in metrics
            else "with `guards.replacementFirst`"
            if right in surges
            else "always"
        ), right


def test_the_overlays_grant_the_same() -> None:
    roles = list(yaml.safe_load_all((KUSTOMIZE / "base" / "rbac.yaml").read_text()))
    granted = {right for role in roles if "rules" in role for right in rights(role)}
    assert granted == templated(dry_run=False)


# ---- alerts


def test_the_runbook_has_a_section_for_every_alert_in_the_same_order() -> None:
    assert list(sections(PAGES["runbook"])) == list(ALERTS)


def test_every_section_says_what_it_means_where_to_look_and_what_to_do() -> None:
    for alert, text in sections(PAGES["runbook"]).items():
        assert re.findall(r"^\*\*(\w+)\*\*", text, flags=re.MULTILINE) == ["Means", "Look", "Do"], alert


def test_an_alert_that_links_a_runbook_links_its_own_section() -> None:
    for alert, rule in ALERTS.items():
        link = rule["annotations"].get("runbook_url", f"/docs/operations/runbook.md#{alert.lower()}")
        assert link.endswith(f"/docs/operations/runbook.md#{alert.lower()}")
        assert alert.lower() in anchors(PAGES["runbook"])


def test_the_documented_rules_are_the_shipped_ones() -> None:
    (block,) = [each for each in blocks(ROOT / "docs" / "webhook.md", "yaml") if "kind: PrometheusRule" in each]
    shown = [rule for group in yaml.safe_load(block)["spec"]["groups"] for rule in group["rules"]]
    for rule in shown:
        if "alert" in rule:
            assert rule == ALERTS[rule["alert"]]
        else:
            assert rule == {"record": rule["record"], "expr": RECORDED[rule["record"]]}
    recorded = {rule["record"] for rule in shown if "record" in rule}
    (alert,) = [rule for rule in shown if "alert" in rule]
    # nothing is missing that the alert needs
    assert set(re.findall(r"rebalancer:[\w:]+", alert["expr"])) == recorded


# ---- names


@EACH
def test_every_metric_variable_and_reason_that_is_named_exists(page: Path) -> None:
    text = page.read_text()
    assert set(re.findall(r"\brebalancer_[a-z_]+(?<!_)\b(?!_)", text)) <= served().keys() | {"rebalancer_high"}
    assert set(re.findall(r"rebalancer:[a-z]+_[a-z_:0-9]+", text)) <= RECORDED.keys()
    known = {f"REBALANCER_{field.upper()}" for field in Settings.model_fields}
    assert set(re.findall(r"\bREBALANCER_[A-Z_]+", text)) <= known


def test_every_reason_in_the_runbook_exists() -> None:
    text = sections(PAGES["runbook"])["RebalancerDataUnsafe"]
    codes = set(re.findall(r"`([A-Z][a-zA-Z]+)`", text))
    assert codes == {"CoverageTooLow", "PartialUsage", "ClockSkew"}
    assert codes | {"PlanningTimeout", "AmbiguousNode", "StaleSample"} <= {str(code) for code in Reason}


def policy_fields() -> set[str]:
    """Every path of a field of the policy, `usage.prometheus.url`; items of lists and maps count as their list."""
    schema = policy_schema()

    def below(part: Any, at: str, above: tuple[str, ...]) -> Iterator[str]:
        for each in (*part.get("anyOf", ()), *part.get("oneOf", ()), *([part["items"]] if "items" in part else ())):
            yield from below(each, at, above)
        if "$ref" in part:
            section = part["$ref"].rsplit("/", 1)[1]
            if section not in above:
                yield from below(schema["$defs"][section], at, (*above, section))
        for field, inner in part.get("properties", {}).items():
            path = f"{at}.{field}".lstrip(".")
            yield path
            yield from below(inner, path, above)

    return set(below(schema, "", ()))


@EACH
def test_every_value_of_the_chart_and_field_of_the_policy_that_is_named_exists(page: Path) -> None:
    fields = policy_fields() | {path.partition(".")[2] for path in policy_fields()}
    known = fields | set(leaves(VALUES)) | {right.resource for right in explained()} | {"spec.unschedulable"}
    named = {span for span in spans(page) if re.fullmatch(r"[a-z]\w*(\.[a-zA-Z]\w*)+", span)}
    assert {span for span in named if span not in known and not span.endswith((".yaml", ".json", ".db"))} == set()


def test_a_field_that_doesnt_exist_would_have_been_told() -> None:
    assert "usage.prometheus.nodeCPU.query" in policy_fields()
    assert "usage.prometheus.nodeCpu.query" not in policy_fields()


# ---- blocks


SECTIONS = set(policy_schema()["properties"])


@pytest.mark.parametrize(
    ("page", "text"),
    [(name(page), text) for page in OPERATIONS for text in blocks(page, "yaml")],
    ids=lambda value: value.split("\n")[0],
)
def test_every_example_is_a_policys_section_or_an_overlay(page: str, text: str, tmp_path: Path) -> None:
    document: dict[str, Any] = yaml.safe_load(text)
    if document.keys() <= SECTIONS:
        a_policy(**document)
        return
    if "replacements" in document:  # a part of an overlay
        objects = overlay_with(tmp_path, resources=["../sqlite"], components=[], **document)
        assert find(objects, "Namespace")["metadata"]["name"] == "ops"
        assert {each["metadata"].get("namespace", "ops") for each in objects} == {"ops"}
        for binding in (find(objects, "ClusterRoleBinding"), find(objects, "RoleBinding")):
            assert [each["namespace"] for each in binding["subjects"]] == ["ops"]
        (condition,) = find(objects, "ValidatingAdmissionPolicy")["spec"]["matchConditions"]
        assert condition["expression"] == 'request.userInfo.username == "system:serviceaccount:ops:rebalancer"'
        return
    assert document["kind"] == "Kustomization"
    made = overlay_with(
        tmp_path,
        resources=document["resources"],
        components=re.findall(r"\.\./\.\./components/\w+", text),
        images=document["images"],
    )
    (deployment,) = [each for each in made if each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "REGISTRY/rebalancer:0.1.0"
    assert container["args"] == ["run", "--dry-run"]


def test_the_overlay_of_the_page_replaces_the_policy_of_ours() -> None:
    text, _ = blocks(PAGES["install"], "yaml")
    (theirs,) = yaml.safe_load(text)["configMapGenerator"]
    (ours,) = yaml.safe_load((KUSTOMIZE / "base" / "kustomization.yaml").read_text())["configMapGenerator"]
    assert theirs == {**ours, "behavior": "replace"}


def test_the_figures_of_the_chart_are_the_charts() -> None:
    page = PAGES["sizing"].read_text()
    resources = VALUES["resources"]
    for figure in (*resources["requests"].values(), resources["limits"]["memory"]):
        assert figure in page
    assert "cpu" not in resources["limits"]
    assert "emptyDir: {sizeLimit: 4Gi}" in (CHART / "templates" / "_pod.tpl").read_text()
    assert "limited to 4Gi" in page


def test_what_the_pages_say_of_defaults_is_so() -> None:
    assert VALUES["dryRun"] is True
    assert VALUES["networkPolicy"]["prometheusPorts"] == [9090]
    assert SCHEMA["properties"]["replicas"]["maximum"] == 9
    assert 'kubeVersion: ">=1.30.0-0 || ' in (CHART / "Chart.yaml").read_text()
    assert "helm.sh/resource-policy: keep" in (CHART / "templates" / "pvc.yaml").read_text()
    assert yaml.safe_load((KUSTOMIZE / "base" / "namespace.yaml").read_text())["metadata"]["name"] == "rebalancer"
    assert Settings().lease_name == "rebalancer"


# ---- the database


def test_migrations_only_add() -> None:
    """`upgrade.md` promises it of those so far: old and new run side by side."""
    scripts = sorted((ROOT / "migrations" / "versions").glob("0*.py"))
    assert scripts
    for path in scripts:
        functions = [each for each in ast.parse(path.read_text()).body if isinstance(each, ast.FunctionDef)]
        (upgrade,) = [each for each in functions if each.name == "upgrade"]
        called = {each.attr for each in ast.walk(upgrade) if isinstance(each, ast.Attribute)}
        assert not {each for each in called if re.match("drop_|rename_|alter_", each)}, path.name


def test_the_backup_of_the_page_copies_a_database_in_use(tmp_path: Path) -> None:
    (line,) = [line for line in commands([PAGES["upgrade"]]) if "python3" in line.words]
    script = line.words[-1].replace("/data/", f"{tmp_path}/")
    with sqlite3.connect(tmp_path / "rebalancer.db") as held:
        held.execute("PRAGMA journal_mode = WAL")
        held.execute("CREATE TABLE t (x)")
        held.execute("INSERT INTO t VALUES (1)")
        held.commit()
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    assert sqlite3.connect(tmp_path / "backup.db").execute("SELECT x FROM t").fetchall() == [(1,)]
    held.close()


def test_a_replica_takes_as_many_connections_as_the_page_says(postgres: PostgresServer) -> None:
    engine = open_engine(postgres.create_database("connections"))
    try:
        pool: Any = engine.pool
        text = PAGES["many-clusters"].read_text()
        assert f"keeps up to {pool.size()} connections open and takes up to {pool._max_overflow} more" in text
        assert f"at most {pool.size() + pool._max_overflow} for each replica" in text
        with engine.connect() as connection:
            for setting, value in re.findall(r"SET (\w+) = '(\w+)'", "\n".join(blocks(PAGES["many-clusters"], "sql"))):
                (now,) = connection.exec_driver_sql(f"SHOW {setting}").one()
                assert str(now).replace("1min", "60s") == value
    finally:
        engine.dispose()


def test_the_page_on_uninstalling_ends_the_pods_before_anything_is_deleted() -> None:
    verbs = {"scale", "wait", "get", "cleanup", "uninstall", "delete"}
    lines = [line.words for line in commands([PAGES["uninstall"]])]
    found = [next(word for word in words if word in verbs) for words in lines]
    assert found == ["scale", "wait", "get", "cleanup", "uninstall", "delete", "delete", "delete"]


def test_no_page_names_a_folder_of_deploy_that_isnt_there() -> None:
    for page in OPERATIONS:
        for path in set(re.findall(r"`(deploy/[\w/.-]+)`", page.read_text())):
            assert (ROOT / path).exists(), (page.name, path)
