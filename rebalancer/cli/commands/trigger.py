"""`rebalancer trigger`: ask a running daemon for a cycle."""

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Annotated

import typer

from rebalancer.cli.common import read_file, say
from rebalancer.model.errors import ConfigError, ConnectError, UnsafeDataError

TIMEOUT_SECONDS = 15.0


def trigger(
    node: Annotated[list[str], typer.Option("--node", help="A node to look at; may be given several times.")],
    strategy: Annotated[str | None, typer.Option("--strategy", help="Only this strategy.")] = None,
    server: Annotated[
        str, typer.Option("--server", envvar="REBALANCER_SERVER", help="Address of the daemon.")
    ] = "http://127.0.0.1:8080",
    token_file: Annotated[
        Path | None, typer.Option("--token-file", envvar="REBALANCER_TOKEN_FILE", help="File with the bearer token.")
    ] = None,
    ca_file: Annotated[Path | None, typer.Option("--ca-file", help="PEM file with the certificates to trust.")] = None,
) -> None:
    """Ask the daemon that leads to look at nodes now. All limits, windows and guards hold as ever."""
    if not server.startswith(("http://", "https://")):
        raise ConfigError(f"--server: expected http:// or https://, got {server}")
    body = json.dumps({"nodes": node} | ({"strategy": strategy} if strategy else {})).encode()
    headers = {"Content-Type": "application/json"}
    if token_file is not None:
        headers["Authorization"] = f"Bearer {read_file(token_file).decode(errors='replace').strip()}"
    request = urllib.request.Request(f"{server.rstrip('/')}/api/v1/trigger", data=body, headers=headers, method="POST")
    try:
        context = ssl.create_default_context(cafile=ca_file) if server.startswith("https://") else None
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=context):
            say(f"asked for: {', '.join(node)}")
    except urllib.error.HTTPError as error:
        raise _refused(server, error) from None
    except (OSError, ValueError) as error:
        raise ConnectError(f"{server}: {getattr(error, 'reason', error)}: expected a running daemon there") from None


def _refused(server: str, error: urllib.error.HTTPError) -> Exception:
    try:
        said = json.loads(error.read()).get("error", "")
    except (ValueError, AttributeError):
        said = ""
    said = f"{server}: {said or error.reason}"
    if error.code == 409:
        return UnsafeDataError(said)
    return ConfigError(said) if error.code == 400 else ConnectError(f"{said} ({error.code})")
