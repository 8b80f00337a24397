"""`rebalancer trigger`: a request for a cycle, sent to a running daemon."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rebalancer.cli.common import read_file, say
from rebalancer.model.errors import ConfigError, ConnectError, RebalancerError, UnsafeDataError
from rebalancer.model.notation.kinds import plain_name

if TYPE_CHECKING:
    import urllib3

TIMEOUT_SECONDS = 15.0


def trigger(
    node: Annotated[list[str], typer.Option("--node", help="Node to evaluate; may be given several times.")],
    strategy: Annotated[str | None, typer.Option("--strategy", help="Run only this strategy.")] = None,
    server: Annotated[
        str, typer.Option("--server", envvar="REBALANCER_SERVER", help="URL of the daemon.")
    ] = "http://127.0.0.1:8080",
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", envvar="REBALANCER_TOKEN_FILE", help="Path to a file with the bearer token."),
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option("--ca-file", help="Path to a PEM file with trusted certificates.")
    ] = None,
) -> None:
    """Request a cycle for some nodes from the leading daemon. All guards, limits and change windows apply."""
    node = [plain_name(each, ["node"]) for each in node]
    if not server.startswith(("http://", "https://")):
        raise ConfigError(f"--server: expected http:// or https://, got {server}")
    headers = {"Content-Type": "application/json"}
    if token_file is not None:
        headers["Authorization"] = f"Bearer {read_file(token_file).decode(errors='replace').strip()}"
    body = json.dumps({"nodes": node} | ({"strategy": strategy} if strategy else {})).encode()
    response = _post(f"{server.rstrip('/')}/api/v1/trigger", body, headers=headers, server=server, ca_file=ca_file)
    if not 200 <= response.status < 300:
        raise _refused(server, response)
    say(f"requested: {', '.join(node)}")


def _post(
    url: str, body: bytes, *, headers: dict[str, str], server: str, ca_file: Path | None
) -> "urllib3.BaseHTTPResponse":
    import ssl

    import urllib3

    try:
        tls = ssl.create_default_context(cafile=ca_file) if url.startswith("https://") else None
        with urllib3.PoolManager(ssl_context=tls) as pool:
            return pool.request("POST", url, body=body, headers=headers, timeout=TIMEOUT_SECONDS, retries=False)
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        why = error.__cause__ or error
        raise ConnectError(
            f"{server}: {why}: expected a running daemon there; --server names another address"
        ) from None


def _refused(server: str, response: "urllib3.BaseHTTPResponse") -> RebalancerError:
    try:
        reason = json.loads(response.data).get("error", "")
    except (ValueError, AttributeError):
        reason = ""
    text = f"{server}: {reason or response.reason}"
    if response.status == 409:
        return UnsafeDataError(text)
    return ConfigError(text) if response.status == 400 else ConnectError(f"{text} ({response.status})")
