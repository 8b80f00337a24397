"""No secret leaves the program, wherever it is echoed: bodies of errors, credential plugins."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.kube.fakes.api import Asked, FakeApi, Reply, status
from tests.programs.cli import Result, policy_for, rebalancer

TOKEN = "planted-Zk81-token"
PLUGIN_SECRET = "planted-Qm52-variable"
PROMETHEUS_TOKEN = "planted-Xw77-prometheus"
PLANTED = (TOKEN, PLUGIN_SECRET, PROMETHEUS_TOKEN)
COMMANDS = (("doctor",), ("plan",), ("explain", "pod", "shop/web-0"), ("run", "--once"))


def echo_as_status(asked: Asked) -> Reply:
    return status(403, f"denied for {asked.headers.get('Authorization')}")


def echo_as_text(asked: Asked) -> Reply:
    return Reply(status=502, body=("x" * 180 + f" request was: {dict(asked.headers)}").encode())


def echo_as_prometheus(asked: Asked) -> Reply:
    body = {"status": "error", "errorType": "bad_data", "error": f"got {asked.headers.get('Authorization')}"}
    return Reply(status=400, body=body)


def kubeconfig(folder: Path, server: str, user: dict[str, object]) -> Path:
    path = folder / "config"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def policy(tmp_path: Path) -> Iterator[Path]:
    """A policy whose Prometheus echoes its token."""
    token = tmp_path / "prometheus-token"
    token.write_text(f"{PROMETHEUS_TOKEN}\n")
    with FakeApi(echo_as_prometheus) as prometheus:
        document = policy_for(prometheus.url)
        document["usage"]["prometheus"]["bearerTokenFile"] = str(token)
        path = tmp_path / "policy.yaml"
        path.write_text(yaml.safe_dump(document))
        yield path


def holds_no_secret(result: Result, folder: Path) -> None:
    assert result.code not in (0, 1), result
    for text in (result.out, result.err):
        assert not [each for each in PLANTED if each in text], text
    for database in folder.glob("*.db*"):
        assert not [each for each in PLANTED if each.encode() in database.read_bytes()]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize("echo", [echo_as_status, echo_as_text])
def test_a_token_that_is_echoed_is_not_printed(
    command: tuple[str, ...], echo: object, policy: Path, tmp_path: Path
) -> None:
    with FakeApi(echo) as api:  # type: ignore[arg-type]
        config = kubeconfig(tmp_path, api.url, {"token": TOKEN})
        result = rebalancer(*command, "-f", policy, "--kubeconfig", config, cwd=tmp_path)
        assert any(TOKEN in str(each.headers) for each in api.asked)
    holds_no_secret(result, tmp_path)


def test_what_a_credential_plugin_prints_is_not_printed(policy: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text('#!/bin/sh\necho "login failed with $SECRET, Bearer abcdefghijklmnop" >&2\nexit 1\n')
    plugin.chmod(0o755)
    variables = [{"name": "SECRET", "value": PLUGIN_SECRET}]
    run = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "env": variables}
    config = kubeconfig(tmp_path, "http://127.0.0.1:1", {"exec": {**run, "interactiveMode": "Never"}})
    result = rebalancer("plan", "-f", policy, "--kubeconfig", config, cwd=tmp_path)
    holds_no_secret(result, tmp_path)
    assert "login failed with ***, Bearer ***" in result.err
