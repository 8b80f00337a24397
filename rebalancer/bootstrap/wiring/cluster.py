"""The connection to the API server alone: commands that only look need no other adapter."""

from contextlib import ExitStack

from rebalancer import __version__
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.kube.client.client import ApiClient, connect

USER_AGENT = f"rebalancer/{__version__}"


def client_of(settings: Settings, stack: ExitStack) -> ApiClient:
    """A client that is closed with the stack. Raises ConfigError."""
    client = connect(settings.kubeconfig, settings.context, USER_AGENT)
    stack.callback(client.close)
    return client
