"""The list of what a new release of Kubernetes adds and nothing here names."""

import json
from pathlib import Path

import pytest

from tests.programs import upstream


def a_checkout(folder: Path, *fields: str, keys: tuple[str, ...] = ()) -> Path:
    """A checkout whose pods have these fields and whose constants have these keys."""
    types = {f"io.k8s.api.core.v1.{name}": {"properties": {}} for name in upstream.TYPES}
    types["io.k8s.api.core.v1.PodSpec"]["properties"] = {field: {} for field in fields}
    (folder / upstream.OPENAPI).parent.mkdir(parents=True)
    (folder / upstream.OPENAPI).write_text(json.dumps({"definitions": types}))
    constants = folder / upstream.CONSTANTS[0]
    constants.parent.mkdir(parents=True)
    constants.write_text("".join(f'\tNewKey = "{key}"\n' for key in keys))
    return folder


def test_only_what_is_new_and_named_nowhere_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = a_checkout(tmp_path / "old", "nodeName", "dnsPolicy")
    fields = ("nodeName", "dnsPolicy", "schedulingGates", "evictionResponders", "neverHeardOf")
    keys = ("controller.kubernetes.io/pod-deletion-cost", "example.com/never-heard-of")
    new = a_checkout(tmp_path / "new", *fields, keys=keys)
    assert upstream.main([str(new), str(old)]) == 1
    assert capsys.readouterr().out.splitlines() == ["PodSpec.neverHeardOf", "example.com/never-heard-of"]


def test_a_release_without_anything_new_is_silent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = str(a_checkout(tmp_path / "same", "dnsPolicy"))
    assert upstream.main([same, same]) == 0
    assert capsys.readouterr().out == ""


def test_a_folder_that_is_no_checkout_is_one_line_and_exit_code_4(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert upstream.main([str(tmp_path), str(tmp_path)]) == 4
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "written"), [("hostUsers", "host_users"), ("podIPs", "pod_ips"), ("tolerations", "tolerations")]
)
def test_fields_are_found_in_pythons_form(name: str, written: str) -> None:
    assert upstream.in_python(name) == written
