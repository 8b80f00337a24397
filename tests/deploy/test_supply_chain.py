"""The bill of materials and the audit are made from the lock files, without a network."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def run(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "deploy" / script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def locked(name: str) -> str:
    (version,) = re.findall(rf"^{name}==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    return str(version)


def test_every_package_of_the_image_is_in_the_bill_of_materials_with_its_hashes() -> None:
    first, second = run("sbom.py"), run("sbom.py")
    assert first.stdout == second.stdout
    document = json.loads(first.stdout)
    lock = (ROOT / "deploy" / "requirements-runtime.lock").read_text()
    pinned = dict(re.findall(r"^([\w.-]+)(?:\[[^]]*\])?==(\S+)", lock, re.MULTILINE))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert {each["name"]: each["version"] for each in document["components"]} == {
        re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pinned.items()
    }
    for each in document["components"]:
        (files,) = each["externalReferences"]
        assert files["hashes"]
        assert each["purl"] == f"pkg:pypi/{each['name']}@{each['version']}"


def test_every_locked_package_has_a_version_and_hashes_and_no_index() -> None:
    for path in (ROOT / "requirements.lock", *(ROOT / "deploy").glob("requirements-*.lock")):
        text = path.read_text()
        assert not re.search(r"https?://|--index|--find-links", text), path
        for block in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]:
            assert re.match(r"[\w.-]+(\[[^]]*\])?==\S+ ", block), block
            assert "--hash=sha256:" in block, block


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_release_has_a_wheel_a_bill_and_sums_that_are_right(tmp_path: Path) -> None:
    command = ["sh", ROOT / "deploy" / "release.sh", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    names = {path.name for path in tmp_path.iterdir()}
    assert names >= {"SHA256SUMS", "rebalancer.cdx.json"}
    (wheel,) = [name for name in names if name.endswith(".whl")]
    checked = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=tmp_path, capture_output=True, check=False)
    assert checked.returncode == 0
    with zipfile.ZipFile(tmp_path / wheel) as files:
        times = {each.date_time for each in files.infolist()}
    assert len(times) == 1  # of the commit, not of the build


def an_advisory(name: str, *events: dict[str, str], **fields: Any) -> dict[str, Any]:
    ranges = [{"type": "ECOSYSTEM", "events": list(events)}]
    affected = {"package": {"ecosystem": "PyPI", "name": name}, "ranges": ranges}
    return {"id": "PYSEC-1", "summary": "a hole", "affected": [affected], **fields}


URLLIB3 = locked("urllib3")
CASES = {
    "open": (an_advisory("urllib3", {"introduced": "0"}), f"urllib3 {URLLIB3}: PYSEC-1: a hole"),
    "not normal": (an_advisory("URLLib3", {"introduced": "0"}), f"urllib3 {URLLIB3}: PYSEC-1: a hole"),
    "fixed later": (
        an_advisory("urllib3", {"introduced": "1.0"}, {"fixed": "999.0"}),
        f"urllib3 {URLLIB3}: PYSEC-1, fixed in 999.0: a hole",
    ),
    "fixed here": (an_advisory("urllib3", {"introduced": "0"}, {"fixed": URLLIB3}), ""),
    "last affected here": (
        an_advisory("urllib3", {"introduced": "0"}, {"last_affected": URLLIB3}),
        f"urllib3 {URLLIB3}: PYSEC-1: a hole",
    ),
    "fixed, and introduced later": (
        an_advisory("urllib3", {"introduced": "0"}, {"fixed": "0.1"}, {"introduced": "999.0"}),
        "",
    ),
    "withdrawn": (an_advisory("urllib3", {"introduced": "0"}, withdrawn="2026-01-01T00:00:00Z"), ""),
    "another package": (an_advisory("left-pad", {"introduced": "0"}), ""),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_advisory_concerns_the_versions_that_it_names(case: tuple[dict[str, Any], str], tmp_path: Path) -> None:
    advisory, line = case
    (tmp_path / "one.json").write_text(json.dumps(advisory))
    result = run("audit.py", tmp_path)
    assert result.stdout.strip() == line
    assert result.returncode == bool(line), result.stderr


def test_the_export_may_be_a_zip_file_and_one_that_is_none_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("PYSEC-1.json", json.dumps(an_advisory("urllib3", {"introduced": "0"})))
    assert run("audit.py", path).returncode == 1
    path.write_text("no zip")
    result = run("audit.py", path)
    assert result.returncode == 4
    assert len(result.stderr.splitlines()) == 1
