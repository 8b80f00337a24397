"""The template of a kubeconfig, looked at before the `kubernetes` package reads it.

The package answers a number where a list belongs with a Python error that names no key. Only what it reads is looked
at, and no value is ever repeated: any of them may be a secret.
"""

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from rebalancer.model.errors import ConfigError

_KINDS: Mapping[type, str] = {str: "text", bool: "true or false", dict: "a mapping", list: "a list"}
_CLUSTER: Mapping[str, type] = {
    "server": str,
    "certificate-authority": str,
    "certificate-authority-data": str,
    "insecure-skip-tls-verify": bool,
    "tls-server-name": str,
    "proxy-url": str,
}
_CONTEXT: Mapping[str, type] = {"cluster": str, "user": str}
_USER: Mapping[str, type] = {
    "token": str,
    "tokenFile": str,
    "client-certificate": str,
    "client-certificate-data": str,
    "client-key": str,
    "client-key-data": str,
    "username": str,
    "password": str,
    "exec": dict,
    "auth-provider": dict,
}
_EXEC: Mapping[str, type] = {"apiVersion": str, "command": str, "args": list, "env": list, "provideClusterInfo": bool}
_PROVIDER: Mapping[str, type] = {"name": str, "config": dict}


def check_kubeconfig(paths: str) -> None:
    """Raises ConfigError naming file, key and what was expected there. `paths` as $KUBECONFIG lists them."""
    for path in (Path(each).expanduser() for each in paths.split(os.pathsep) if each):
        if path.exists():
            try:
                _check(path, _read(path))
            except _ShapeError as error:
                raise ConfigError(f"{path}: the kubeconfig can't be used: {error}") from None


class _ShapeError(Exception):
    def __init__(self, key: str, expected: str) -> None:
        super().__init__(f"{key}: expected {expected}")


def _read(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: the kubeconfig can't be used: {error.strerror or error}") from None
    except yaml.MarkedYAMLError as error:
        # not the error's own text, which shows the line with whatever secret stands in it
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}: the kubeconfig can't be used: not YAML{line}") from None
    # PyYAML's constructors stumble over odd values in all of these ways
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        raise ConfigError(f"{path}: the kubeconfig can't be used: not YAML") from None


def _check(path: Path, config: Any) -> None:
    if config is None:
        raise ConfigError(f"{path}: the kubeconfig can't be used: the file is empty")
    _expect("the file", config, dict, expected="a mapping with clusters, users and contexts")
    _fields("", config, {"current-context": str})
    for name, cluster in _entries(config, "clusters", "cluster"):
        _fields(name, cluster, _CLUSTER)
        if "server" in cluster:
            _check_server(f"{name}.server", cluster["server"])
    for name, context in _entries(config, "contexts", "context"):
        _fields(name, context, _CONTEXT)
    for name, user in _entries(config, "users", "user"):
        _fields(name, user, _USER)
        _check_user(name, user)


def _entries(config: Mapping[str, Any], plural: str, singular: str) -> list[tuple[str, Mapping[str, Any]]]:
    """(key, mapping) of each entry; those without their mapping are left to the package, which names them."""
    listed = config.get(plural) or []
    _expect(plural, listed, list)
    found = []
    for number, entry in enumerate(listed):
        _expect(f"{plural}[{number}]", entry, dict, expected="a mapping with name")
        if not isinstance(entry.get("name"), str):
            raise _ShapeError(f"{plural}[{number}].name", "text")
        key, inner = f"{plural}[{number}].{singular}", entry.get(singular)
        if inner is not None:
            _expect(key, inner, dict)
            found.append((key, inner))
    return found


def _fields(key: str, mapping: Mapping[str, Any], fields: Mapping[str, type]) -> None:
    for name, kind in fields.items():
        value = mapping.get(name)
        if value is None:
            continue
        full = f"{key}.{name}" if key else name
        _expect(full, value, kind)
        if name.endswith("-data"):
            try:
                base64.standard_b64decode(value)
            except (binascii.Error, ValueError):
                raise _ShapeError(full, "base64") from None


def _check_server(key: str, server: str) -> None:
    try:
        url = parse_url(server) if server.startswith(("https://", "http://")) else None
    except LocationParseError:
        url = None
    if url is None or not url.host:
        raise _ShapeError(key, "a URL such as https://host:6443")


def _check_user(key: str, user: Mapping[str, Any]) -> None:
    provider, plugin = user.get("auth-provider") or {}, user.get("exec") or {}
    _fields(f"{key}.auth-provider", provider, _PROVIDER)
    _fields(f"{key}.exec", plugin, _EXEC)
    for name in ("apiVersion", "command") if plugin else ():
        if name not in plugin:
            raise _ShapeError(f"{key}.exec.{name}", "text")
    for number, argument in enumerate(plugin.get("args") or ()):
        _expect(f"{key}.exec.args[{number}]", argument, str)
    for number, variable in enumerate(plugin.get("env") or ()):
        full = f"{key}.exec.env[{number}]"
        _expect(full, variable, dict, expected="a mapping with name and value")
        for name in ("name", "value"):
            _expect(f"{full}.{name}", variable.get(name), str)


def _expect(key: str, value: Any, kind: type, *, expected: str = "") -> None:
    if not isinstance(value, kind):
        raise _ShapeError(key, expected or _KINDS[kind])
