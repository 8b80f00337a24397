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
