"""The commands of install, first week and uninstall that need no running pod, to the letter, on a real API server."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.deploy.programs import helm, kubectl
from tests.deploy.readers.manifests import ROOT, rights
from tests.deploy.readers.pages import DOCS, blocks
from tests.deploy.servers import Cluster, helm_environment
from tests.deploy.test_docs_newcomer import checkout
from tests.real.servers.api_server import api_server

LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "rebalancer", "namespace": "rebalancer"},
}
"""As the daemon, which nobody runs here, would have made it."""

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def block(page: str, words: str) -> str:
    """The one block of shell of a page that holds these words."""
    (found,) = [text for text in blocks(DOCS / "operations" / f"{page}.md", "sh") if words in text]
    return found


def shell(cluster: Cluster, folder: Path) -> Callable[[str], None]:
    """Runs lines in the copy of a checkout, as the cluster's administrator."""
    env = helm_environment(cluster, folder)
    env["PATH"] = os.pathsep.join([str(Path(helm()).parent), str(Path(kubectl()).parent), env["PATH"]])
    copy = checkout(folder)
    (copy / "policy.yaml").write_bytes((ROOT / "policies" / "conservative.yaml").read_bytes())
    (copy / "FILE").write_text("postgresql://rebalancer:secret@database.example/rebalancer")

    def lines(text: str) -> None:
        done = subprocess.run(
            ["bash", "-e", "-x", "-c", text],
            cwd=copy,
            env=env,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return lines


def test_the_pages_commands_install_switch_on_and_uninstall(tmp_path: Path) -> None:
    with api_server() as server:
        cluster = Cluster.of(server, tmp_path)
        # no pod runs here, so the hook before an uninstallation would not end
        lines = shell(cluster, tmp_path)

        def deployment() -> dict[str, object]:
            said = cluster.kubectl("-n", "rebalancer", "get", "deployment", "rebalancer", "-o", "json")
            return dict(json.loads(said)["spec"])

        def may_evict() -> bool:
            role = yaml.safe_load(cluster.kubectl("get", "clusterrole", "rebalancer", "-o", "yaml"))
            return "pods/eviction" in {right.resource for right in rights(role)}

        # PostgreSQL first: its lines make the namespace
        lines(block("install", "database.kind=postgresql"))
        assert deployment()["replicas"] == 2
        lines(block("uninstall", "helm uninstall").replace("helm uninstall", "helm uninstall --no-hooks"))
        lines(block("install", "--create-namespace"))
        assert deployment()["replicas"] == 1
        assert not may_evict()
        upgrade, _, _ = block("first-week", "helm upgrade").partition("\n")
        lines(upgrade)
        assert may_evict()
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(LEASE))
        lines(block("uninstall", "--replicas=0"))
        assert deployment()["replicas"] == 0
        lines(block("uninstall", "custom-columns"))
        lines(block("uninstall", "helm uninstall").replace("helm uninstall", "helm uninstall --no-hooks"))
        left = cluster.kubectl("-n", "rebalancer", "get", "deployments,services,persistentvolumeclaims", "-o", "name")
        assert left.split() == ["persistentvolumeclaim/rebalancer"]
        # nobody is here to finish what finalizers wait for
        lines(block("uninstall", "delete lease").replace("\n", " --wait=false\n"))
        left = cluster.kubectl("-n", "rebalancer", "get", "leases", "-o", "name")
        assert left.split() == []
