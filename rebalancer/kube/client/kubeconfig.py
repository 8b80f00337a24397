"""Validation of a kubeconfig before the `kubernetes` package reads it.

The package answers a number where a list belongs with a Python error that names no key. Only the fields that it reads
are validated, and no value is ever repeated: any of them may be a secret.
"""

import base64
import binascii
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from rebalancer.model.errors import ConfigError


class _ExpectedError(Exception):
    def __init__(self, key: str, expected: str) -> None:
        super().__init__(f"{key or 'the file'}: expected {expected}")


def _text(key: str, value: Any) -> None:
    if not isinstance(value, str):
        raise _ExpectedError(key, "text")


def _boolean(key: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise _ExpectedError(key, "true or false")


def _base64(key: str, value: Any) -> None:
    _text(key, value)
    try:
        base64.standard_b64decode(value)
    except (binascii.Error, ValueError):
        raise _ExpectedError(key, "base64") from None


def _url(key: str, value: Any) -> None:
    _text(key, value)
    try:
        url = parse_url(value) if value.startswith(("https://", "http://")) else None
    except LocationParseError:
        url = None
    if url is None or not url.host:
        raise _ExpectedError(key, "a URL such as https://host:6443")


_Check = Callable[[str, Any], None]


def _list(item: _Check) -> _Check:
    def check(key: str, value: Any) -> None:
        if not isinstance(value, list):
            raise _ExpectedError(key, "a list")
        for number, each in enumerate(value):
            item(f"{key}[{number}]", each)

    return check


def _mapping(fields: Mapping[str, _Check], *, required: tuple[str, ...] = ()) -> _Check:
    def check(key: str, value: Any) -> None:
        if not isinstance(value, dict):
            raise _ExpectedError(key, "a mapping" + (f" with {' and '.join(required)}" if required else ""))
        for name, field in fields.items():
            if name in required or value.get(name) is not None:
                field(f"{key}.{name}".removeprefix("."), value.get(name))

    return check


def _entries(name: str, fields: Mapping[str, _Check]) -> _Check:
    return _list(_mapping({"name": _text, name: _mapping(fields)}, required=("name",)))


_CLUSTER = {
    "server": _url,
    **dict.fromkeys(("certificate-authority", "tls-server-name", "proxy-url"), _text),
    "certificate-authority-data": _base64,
    "insecure-skip-tls-verify": _boolean,
}
_EXEC = {
    "apiVersion": _text,
    "command": _text,
    "args": _list(_text),
    "env": _list(_mapping({"name": _text, "value": _text}, required=("name", "value"))),
    "provideClusterInfo": _boolean,
}
_USER = {
    **dict.fromkeys(("token", "tokenFile", "client-certificate", "client-key", "username", "password"), _text),
    **dict.fromkeys(("client-certificate-data", "client-key-data"), _base64),
    "exec": _mapping(_EXEC, required=("apiVersion", "command")),
    "auth-provider": _mapping({"name": _text, "config": _mapping({})}),
}
_KUBECONFIG = _mapping(
    {
        "current-context": _text,
        "clusters": _entries("cluster", _CLUSTER),
        "contexts": _entries("context", {"cluster": _text, "user": _text}),
        "users": _entries("user", _USER),
    }
)


def check_kubeconfig(paths: str) -> None:
    """Raises ConfigError with file, key and expected type. `paths` as in $KUBECONFIG."""
    for path in (Path(each).expanduser() for each in paths.split(os.pathsep) if each):
        if path.exists():
            try:
                _KUBECONFIG("", _read(path))
            except _ExpectedError as error:
                raise _unusable(path, str(error)) from None


def _read(path: Path) -> Any:
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unusable(path, str(error.strerror or error)) from None
    except yaml.MarkedYAMLError as error:
        # not the error's own text, which shows the line with whatever secret stands in it
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise _unusable(path, f"not YAML{line}") from None
    # PyYAML's constructors stumble over odd values in all of these ways
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        raise _unusable(path, "not YAML") from None
    if config is None:
        raise _unusable(path, "the file is empty")
    return config


def _unusable(path: Path, why: str) -> ConfigError:
    return ConfigError(f"{path}: the kubeconfig can't be used: {why}")
