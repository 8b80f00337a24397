"""Stops our own Deployment, before it is uninstalled."""

import msgspec

from rebalancer.kube.actions.taints import MERGE_PATCH
from rebalancer.kube.client.client import ApiClient
from rebalancer.kube.snapshot.snapshot import WORKLOADS

DEPLOYMENTS = WORKLOADS["Deployment"]


def scale_to_zero(client: ApiClient, namespace: str, name: str) -> bool:
    """Scale a Deployment to 0 replicas; False where there is none of this name. Raises ConnectError."""
    path = DEPLOYMENTS.path(namespace=namespace, name=name, subresource="scale")
    body = msgspec.json.encode({"spec": {"replicas": 0}})
    response = client.send("PATCH", path, body, content_type=MERGE_PATCH)
    if response.status == 404:
        return False
    if response.status != 200:
        raise client.error(response, verb="patch", resource=f"{DEPLOYMENTS.rbac_name}/scale")
    return True
