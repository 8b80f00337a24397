"""The version of the API server, and the release whose kube-scheduler is followed."""

from contextlib import suppress

import msgspec

from rebalancer.kube.client.client import ApiClient
from rebalancer.model.cluster.releases import OLDEST_MINOR, modelled_minor
from rebalancer.model.errors import ConnectError, UnsafeDataError


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


def server_version(client: ApiClient) -> str:
    """The API server's version, as `v1.36.2`. Raises ConnectError or UnsafeDataError."""
    version = client.read("/version", _Version, verb="get", resource="/version")
    if version is None:
        raise ConnectError(f"{client.server}: no Kubernetes API server: /version answers 404")
    return version.git_version


class FollowedRelease:
    """The release that is followed."""

    def __init__(self, client: ApiClient) -> None:
        self._client, self._known = client, OLDEST_MINOR

    def minor(self) -> int:
        """`modelled_minor` of the API server; where it doesn't answer the last one, and before that the oldest."""
        # what is read next says whether the cluster can be read at all
        with suppress(ConnectError, UnsafeDataError):
            self._known = modelled_minor(server_version(self._client))
        return self._known
