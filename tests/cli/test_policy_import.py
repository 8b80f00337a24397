"""`rebalancer policy import`: a policy on stdout, what differs on stderr; or both as JSON."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rebalancer.cli.main import app
from rebalancer.model.errors import ConfigError
from rebalancer.policy import load_policy

THEIRS = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
gracePeriodSeconds: 60
profiles:
  - name: main
    pluginConfig:
      - name: PodLifeTime
        args: {maxPodLifeTimeSeconds: 604800}
    plugins:
      deschedule: {enabled: [PodLifeTime]}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "descheduler.yaml"
    path.write_text(THEIRS)
    return path


def test_the_policy_is_on_stdout_and_what_differs_on_stderr(path: Path) -> None:
    result = CliRunner(env={"COLUMNS": None}).invoke(app, ["policy", "import", str(path), "--cluster", "blue"])
    assert result.exit_code == 0
    policy = load_policy(result.stdout.encode(), source="stdout")
    assert (policy.cluster, [each.name for each in policy.strategies]) == ("blue", ["PodLifeTime"])
    assert "each pod's own grace period applies" not in result.stdout
    (row,) = [line for line in result.stderr.splitlines() if "gracePeriodSeconds" in line]
    assert row.split()[:2] == ["3", "gracePeriodSeconds"]
    assert row.rstrip().endswith("each pod's own grace period applies")


def test_json_has_both_and_nothing_else_is_printed(path: Path) -> None:
    command = ["policy", "import", str(path), "--prometheus-url", "http://p:9090", "-o", "json"]
    result = CliRunner().invoke(app, command)
    document = json.loads(result.stdout)
    assert result.stderr == ""
    assert document["schemaVersion"] == "2"
    assert load_policy(document["policy"].encode(), source="json").usage.prometheus is not None
    listed = [each for each in document["differences"] if each["field"] == "gracePeriodSeconds"]
    assert listed == [
        {
            "field": "gracePeriodSeconds",
            "line": 3,
            "kind": "not supported",
            "policyField": None,
            "why": "each pod's own grace period applies",
        }
    ]
    assert {each["kind"] for each in document["differences"] if each["field"] is None} == {"different", "decide"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("v1alpha2", "v1alpha1"), "descheduler.yaml:1: apiVersion: expected descheduler/v1alpha2, got "),
        (
            ("gracePeriodSeconds", "gracePeriod"),
            "descheduler.yaml:3: gracePeriod: unknown field, did you mean",
        ),
    ],
)
def test_what_cannot_be_read_ends_with_the_code_of_a_wrong_file(
    path: Path, change: tuple[str, str], message: str
) -> None:
    path.write_text(THEIRS.replace(*change))
    result = CliRunner().invoke(app, ["policy", "import", str(path)])
    assert isinstance(result.exception, ConfigError)
    assert result.exception.exit_code == 4
    assert message in str(result.exception)
    assert len(str(result.exception).splitlines()) == 1
    assert result.stdout == ""


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["policy", "import", str(tmp_path / "none.yaml")])
    assert isinstance(result.exception, ConfigError)
    assert "expected a readable file" in str(result.exception)


def test_a_policy_is_read_from_stdin() -> None:
    result = CliRunner().invoke(
        app, ["policy", "import", "-"], input=f"apiVersion: v1\nkind: List\nitems: []\n---\n{THEIRS}"
    )
    assert result.exit_code == 0
    assert result.stdout.startswith("# Converted from stdin ")
    assert load_policy(result.stdout.encode(), source="stdout").strategies[0].name == "PodLifeTime"


@pytest.fixture
def folder(path: Path) -> Path:
    folder = path.parent
    (folder / "apps").mkdir()
    (folder / "apps" / "values.yml").write_text("deschedulerPolicy: {profiles: []}\n")
    (folder / "apps" / "openshift.yaml").write_text("apiVersion: operator.openshift.io/v1\nkind: KubeDescheduler\n")
    (folder / "apps" / "namespace.yaml").write_text("apiVersion: v1\nkind: Namespace\n")
    (folder / "apps" / "template.yaml").write_text("{{- if .Values.deschedulerPolicy }}\na: {{ x }}\n")
    (folder / ".git").mkdir()
    (folder / ".git" / "hidden.yaml").write_text(THEIRS)
    (folder / "README.md").write_text("descheduler")
    return folder


def test_a_folder_has_a_row_with_the_outcome_of_each_file(folder: Path) -> None:
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["policy", "import", str(folder)])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).endswith("expected manifests that can be imported, got 3 that can't: see REASON")
    _, head, *rows = [line for line in result.stdout.splitlines() if line.strip()]
    assert head.split() == ["FILE", "LINE", "FORM", "OUTCOME", "STRATEGIES", "DIFFERENCES", "TO", "DECIDE", "REASON"]
    assert [row.split()[0] for row in rows] == [
        *("apps/namespace.yaml", "apps/openshift.yaml", "apps/template.yaml", "apps/values.yml", "descheduler.yaml"),
    ]
    assert "no policy" in rows[0]
    assert rows[1].split()[1:4] == ["1", "KubeDescheduler", "refused"]
    assert "apps/template.yaml:1: not YAML: expressions of a template" in rows[2]
    assert "Helm values" in rows[3]
    assert "profiles: expected at least 1 entry" in rows[3]
    assert rows[4].split()[1:5] == ["1", "DeschedulerPolicy", "imported", "PodLifeTime"]


def test_json_of_a_folder_has_the_policies(folder: Path) -> None:
    result = CliRunner().invoke(app, ["policy", "import", str(folder), "--cluster", "blue", "-o", "json"])
    files = {each["file"]: each for each in json.loads(result.stdout)["files"]}
    assert {name: each["outcome"] for name, each in files.items()} == {
        "apps/namespace.yaml": "no policy",
        "apps/openshift.yaml": "refused",
        "apps/template.yaml": "refused",
        "apps/values.yml": "refused",
        "descheduler.yaml": "imported",
    }
    imported = files["descheduler.yaml"]
    assert load_policy(imported["policy"].encode(), source="json").cluster == "blue"
    assert "gracePeriodSeconds" in {each["field"] for each in imported["differences"]}
    assert files["apps/openshift.yaml"]["why"].startswith("OpenShift's KubeDescheduler")


def test_a_folder_without_manifests_is_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["policy", "import", str(tmp_path)])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception) == f"{tmp_path}: expected a folder with manifests: .json, .yaml, .yml"
