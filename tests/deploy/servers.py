"""Our manifests on a real API server."""

import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.deploy.programs import kubectl, run
from tests.deploy.readers.manifests import Object
from tests.real.servers.api_server import ApiServer

STRICT = ("--server-side", "--validate=strict", "--force-conflicts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """An API server and kubectl as its administrator."""

    server: ApiServer
    kubeconfig: Path

    @classmethod
    def of(cls, server: ApiServer, folder: Path) -> "Cluster":
        return cls(server=server, kubeconfig=server.kubeconfig(folder / "kubeconfig"))

    def kubectl(self, *arguments: str | Path, stdin: str = "") -> str:
        """What kubectl says; fails when it fails, and on a warning."""
        with tempfile.TemporaryDirectory() as home:
            return run(
                kubectl(), f"--kubeconfig={self.kubeconfig}", "--warnings-as-errors", *arguments,
                stdin=stdin, env={"HOME": home},
            )  # fmt: skip

    def apply(self, objects: Iterable[Object], *flags: str) -> str:
        """Apply them strictly: an unknown field, a wrong type or a warning is an error."""
        return self.kubectl("apply", *STRICT, *flags, "-f", "-", stdin=_list(objects))

    def delete(self, objects: Iterable[Object]) -> str:
        """Ask for their deletion, all of them must be there. Nobody is here to finish what finalizers wait for."""
        return self.kubectl("delete", "--wait=false", "-f", "-", stdin=_list(objects))

    def get(self, objects: Iterable[Object]) -> list[Object]:
        """Those of the objects that are there, as they are."""
        said = self.kubectl("get", "--ignore-not-found", "-o", "json", "-f", "-", stdin=_list(objects))
        return list(json.loads(said)["items"]) if said else []

    def account(self, namespace: str, name: str) -> ApiServer:
        """The same server with the token of a service account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        made = self.server.call(
            "POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        )
        return replace(self.server, token=made["status"]["token"])


def monitoring_crds() -> list[Object]:
    """Of the Prometheus operator, without their schemas."""
    kinds = {"ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules"}
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.monitoring.coreos.com"},
            "spec": {
                "group": "monitoring.coreos.com",
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}],
            },
        }
        for kind, plural in kinds.items()
    ]


def _list(objects: Iterable[Object]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def helm_environment(cluster: Cluster, folder: Path) -> dict[str, str]:
    """For helm as the administrator of the cluster, with nothing of the machine's own."""
    return {"KUBECONFIG": str(cluster.kubeconfig), "HOME": str(folder), "PATH": os.environ["PATH"]}
