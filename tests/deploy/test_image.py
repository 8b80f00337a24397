"""The image, as far as it can be checked without building it: lock files and Dockerfile."""

import fnmatch
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from rebalancer.bootstrap.process.settings import Settings
from tests.deploy.readers.manifests import DEPLOY, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = runpy.run_path(str(DEPLOY / "locks.py"))


class Step(NamedTuple):
    """One instruction of the Dockerfile."""

    stage: int
    name: str
    text: str


def steps() -> list[Step]:
    out: list[Step] = []
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    stage = -1
    for line in text.replace("\\\n", " ").splitlines():
        name, _, rest = line.strip().partition(" ")
        if name:
            stage += name == "FROM"
            out.append(Step(stage, name, " ".join(rest.split())))
    return out


def last_stage() -> list[Step]:
    return [each for each in steps() if each.stage == steps()[-1].stage]


def copied() -> list[str]:
    """The paths of the source tree that the image is made of."""
    return [
        path for each in steps() if each.name == "COPY" and "--from" not in each.text for path in each.text.split()[:-1]
    ]


# ---- lock files


def test_the_images_lock_files_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, DEPLOY / "locks.py", "--check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_stale_lock_file_is_told(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "requirements.lock", "deploy/locks.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    script = tmp_path / "deploy" / "locks.py"
    subprocess.run([sys.executable, script], check=True, timeout=60)
    lock = tmp_path / "requirements.lock"
    lock.write_text(lock.read_text().replace("msgspec==", "msgspec==9"))
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "requirements-runtime.lock" in done.stderr
    assert "requirements-build.lock" not in done.stderr


def test_what_the_image_installs_is_what_the_program_needs_and_nothing_that_only_tests_need() -> None:
    lock = LOCKS["read_lock"]((DEPLOY / "requirements-runtime.lock").read_text())
    named = {LOCKS["normal"](re.split(r"[\[<>=]", each)[0]) for each in PROJECT["project"]["dependencies"]}
    only_tests = {re.split(r"[<>=]", each)[0].lower() for each in PROJECT["project"]["optional-dependencies"]["dev"]}
    assert named <= lock.keys()
    assert lock.keys().isdisjoint(only_tests)
    assert all("--hash=sha256:" in each.text for each in lock.values())


def test_the_closure_follows_every_need_and_no_other() -> None:
    text = "".join(
        f"{name}==1 \\\n    --hash=sha256:0\n    # via{via}\n"
        for name, via in {
            "a": " me (pyproject.toml)",
            "a-b": "\n    #   A\n    #   other",
            "c": " a_b",
            "other": " me (pyproject.toml)",
            "d": " other",
        }.items()
    )
    lock = LOCKS["read_lock"](text)
    assert LOCKS["closure"](lock, ["A"]) == ["a", "a-b", "c"]
    assert LOCKS["closure"](lock, ["other"]) == ["a-b", "c", "other", "d"]
    with pytest.raises(KeyError, match="make lock"):
        LOCKS["closure"](lock, ["nothing"])


# ---- the Dockerfile


def test_all_stages_start_from_one_pinned_python_that_fits() -> None:
    assert {each.text.split()[0] for each in steps() if each.name == "FROM"} == {"${PYTHON_IMAGE}"}
    argument = next(each.text for each in steps() if each.name == "ARG")
    name, _, tag = argument.removeprefix("PYTHON_IMAGE=").partition(":")
    assert name == "python"
    assert tag == "3.11-slim"
    assert PROJECT["project"]["requires-python"] == ">=3.11"


def test_the_image_runs_as_nobody_in_particular() -> None:
    users = [each.text for each in last_stage() if each.name == "USER"]
    assert users
    user, _, group = users[-1].partition(":")
    # numbers: the kubelet can't tell whether a name is root
    assert int(user) > 0
    assert int(group) > 0
    names = [each.name for each in last_stage()]
    assert names.index("USER") > max(index for index, name in enumerate(names) if name == "RUN")


def test_the_last_stage_installs_nothing_and_keeps_no_tools() -> None:
    for each in last_stage():
        assert each.name != "ADD"
        if each.name == "RUN":
            assert not re.search(r"\b(apt|apt-get|apk|curl|wget|git|gcc|make)\b|pip install", each.text)
        if each.name == "COPY":
            assert each.text.split()[0] == "--from=build"
    assert any(
        "pip uninstall" in each.text and "setuptools" in each.text for each in last_stage() if each.name == "RUN"
    )


def test_the_image_knows_its_paths_and_holds_no_secret() -> None:
    (env,) = [each.text for each in last_stage() if each.name == "ENV"]
    values = dict(pair.split("=", 1) for pair in env.split())
    known = {f"REBALANCER_{name.upper()}" for name in Settings.model_fields} | {"REBALANCER_POLICY"}
    assert {name for name in values if name.startswith("REBALANCER_")} <= known
    assert not [name for name in values if re.search("TOKEN|PASSWORD|SECRET|KEY", name)]
    assert values["REBALANCER_DATABASE"] == "sqlite:////data/rebalancer.db"
    assert values["REBALANCER_HISTORY_DIR"].startswith("/data/")


def test_the_image_starts_the_daemon_as_process_1() -> None:
    commands = {each.name: each.text for each in last_stage()}
    # as lists: a shell in between would keep SIGTERM to itself
    assert commands["ENTRYPOINT"] == '["rebalancer"]'
    assert commands["CMD"] == '["run"]'
    assert commands["STOPSIGNAL"] == "SIGTERM"


def ignored(path: str) -> bool:
    """Whether .dockerignore keeps the path out: the last line that matches it or a folder of it counts."""
    out = False
    parts = path.split("/")
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.strip().removeprefix("!")
        if not pattern or pattern.startswith("#"):
            continue
        prefixes = ["/".join(parts[: count + 1]) for count in range(len(parts))]
        if any(
            fnmatch.fnmatch(each, pattern) or fnmatch.fnmatch(f"/{each}", pattern.replace("**", "*"))
            for each in prefixes
        ):
            out = not line.startswith("!")
    return out


def test_the_context_is_what_is_copied_and_no_more() -> None:
    for path in copied():
        assert (ROOT / path).exists(), path
        assert not ignored(path), path
    for path in (
        ".git/config",
        ".venv/bin/python",
        "rebalancer.db",
        "tests/conftest.py",
        "deploy/helm/rebalancer/values.yaml",
    ):
        assert ignored(path), path
    assert ignored("rebalancer/__pycache__/x.pyc")
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert allowed == set(copied())
