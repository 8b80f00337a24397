"""The version of the API server, and the release whose kube-scheduler is followed."""

import msgspec

from rebalancer.kube.client.client import NOT_READABLE, ApiClient, StatusError
from rebalancer.model.cluster.releases import OLDEST_MINOR, modelled_minor
from rebalancer.model.errors import ConnectError


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


def server_version(client: ApiClient) -> str:
    """The API server's version, as `v1.36.2`. Raises ConnectError or UnsafeDataError."""
    version = client.read("/version", _Version, verb="get", resource="/version")
    if version is None:
        raise ConnectError(f"{client.server}: no Kubernetes API server: /version answers 404")
    return version.git_version


def followed_minor(client: ApiClient) -> int:
    """`modelled_minor` of the API server; the oldest where we may not ask. Raises ConnectError or UnsafeDataError."""
    try:
        version = client.read("/version", _Version, verb="get", resource="/version")
    except StatusError as error:
        if error.status not in NOT_READABLE:
            raise
        version = None
    return OLDEST_MINOR if version is None else modelled_minor(version.git_version)
