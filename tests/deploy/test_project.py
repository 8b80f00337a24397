"""What a project needs to be adopted: license, community pages, workflows, releases, and a version with a commit."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import rebalancer
from tests.conftest import MAY_BE_SKIPPED
from tests.deploy.programs import NEEDS_ACTIONLINT, NEEDS_HELM, NEEDS_KUBECTL, actionlint, helm, run
from tests.deploy.readers.manifests import CHART, DEPLOY, ROOT
from tests.programs.cli import rebalancer as program

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
FORMS = [path for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")) if path.stem != "config"]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a release."""
    folder = tmp_path_factory.mktemp("release")
    tools = tmp_path_factory.mktemp("tools")
    (tools / "helm").symlink_to(helm())
    env = {**os.environ, "PATH": os.pathsep.join([str(tools), os.environ["PATH"]])}
    command = ["sh", DEPLOY / "release.sh", folder]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder


# ---- license and pages


def test_the_license_is_apache_2_and_the_project_says_so() -> None:
    text = (ROOT / "LICENSE").read_text()
    for words in (
        "Apache License",
        "Version 2.0, January 2004",
        "END OF TERMS AND CONDITIONS",
        "9. Accepting Warranty",
    ):
        assert words in text
    assert (PROJECT["license"], PROJECT["license-files"]) == ("Apache-2.0", ["LICENSE"])


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("CONTRIBUTING.md", ["make test", "docs/architecture.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md"]),
        ("SECURITY.md", ["security@", "docs/operations/support.md", "cosign verify", "rebalancer version"]),
        ("CODE_OF_CONDUCT.md", ["Contributor Covenant", "conduct@"]),
        ("docs/operations/support.md", ["## Versions", "## The policy API", "v1alpha1", "deprecated", "Kubernetes"]),
    ],
)
def test_the_pages_of_the_community_are_there_and_their_links_lead_somewhere(page: str, words: list[str]) -> None:
    path = ROOT / page
    text = path.read_text()
    assert [each for each in words if each not in text] == []
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_every_file_has_an_owner_and_every_owned_path_is_there() -> None:
    lines = (ROOT / ".github" / "CODEOWNERS").read_text().splitlines()
    rules = [line.split() for line in lines if line and not line.startswith("#")]
    assert rules[0][0] == "*"
    for path, *owners in rules:
        assert path == "*" or (ROOT / path.strip("/")).exists(), path
        assert owners
        assert all(re.fullmatch(r"@[\w-]+(/[\w-]+)?", each) for each in owners)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_asks_for_what_an_answer_needs(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert form.keys() == {"name", "description", "labels", "body"}
    kinds = {"textarea", "input", "dropdown", "markdown", "checkboxes"}
    identifiers = [each["id"] for each in form["body"]]
    assert len(set(identifiers)) == len(identifiers)
    for each in form["body"]:
        assert each.keys() <= {"type", "id", "attributes", "validations"}
        assert each["type"] in kinds
        assert each["attributes"]["label"]
    assert any(each.get("validations", {}).get("required") for each in form["body"])
    if path.stem != "feature":
        assert "version" in identifiers


def test_there_are_forms_and_a_template_and_security_goes_elsewhere() -> None:
    assert {path.stem for path in FORMS} == {"bug", "eviction", "feature"}
    config = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml").read_text())
    assert config["blank_issues_enabled"] is False
    assert any("Security" in each["name"] for each in config["contact_links"])
    assert "CHANGELOG.md" in (ROOT / ".github" / "pull_request_template.md").read_text()


# ---- workflows


def workflow(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yaml").read_text()))


def test_actionlint_finds_nothing_in_the_workflows() -> None:
    run(actionlint(), "-no-color", "-shellcheck=", "-pyflakes=", *WORKFLOWS)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_least_rights_a_time_limit_and_pinned_actions(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    assert document["permissions"] == {"contents": "read"}
    for name, job in document["jobs"].items():
        if "uses" in job:
            continue
        assert job["timeout-minutes"] <= 90, name
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), step
            if "uses" in step:
                assert re.fullmatch(r"[\w.-]+/[\w./-]+@(v\d+(\.\d+)*|release/v\d+)", step["uses"]), step
            else:
                assert "${{" not in step["run"], "an expression in a script is an injection: pass it as env"
                checked = subprocess.run(["bash", "-n"], input=step["run"], capture_output=True, text=True, check=False)
                assert checked.returncode == 0, checked.stderr


def test_changes_are_tested_on_every_supported_kubernetes_from_the_oldest_on() -> None:
    jobs = workflow("ci")["jobs"]
    versions = jobs["api-server"]["strategy"]["matrix"]["kubernetes"]
    oldest = re.search(r'kubeVersion: ">=(\d+\.\d+)\.', (CHART / "Chart.yaml").read_text())
    assert oldest is not None
    assert versions[0] == oldest[1]
    assert [int(each.split(".")[1]) for each in versions] == list(range(30, 30 + len(versions)))
    assert len(versions) >= 4
    clusters = jobs["cluster"]["strategy"]["matrix"]["kubernetes"]
    assert [each[1:].rpartition(".")[0] for each in clusters] == [versions[0], versions[-1]]
    assert any("bash .ci/run" in step.get("run", "") for step in jobs["check"]["steps"])


def test_a_release_waits_for_the_check_and_publishes_and_signs_everything() -> None:
    jobs = workflow("release")["jobs"]
    assert jobs["check"]["uses"] == "./.github/workflows/ci.yaml"
    assert {name: job.get("needs") for name, job in jobs.items()} == {
        "check": None,
        "image": "check",
        "files": "check",
        "wheel": "files",
    }
    (image,) = [each["with"] for each in jobs["image"]["steps"] if "build-push" in each.get("uses", "")]
    assert image["platforms"] == "linux/amd64,linux/arm64"
    assert image["sbom"] is True
    assert image["push"] is True
    assert image["build-args"].startswith("COMMIT=")
    scripts = {name: "\n".join(step.get("run", "") for step in job.get("steps", ())) for name, job in jobs.items()}
    assert "cosign sign" in scripts["image"]
    for words in ("deploy/release.sh", "helm push", "oci://", "cosign sign ", "cosign sign-blob", "CHANGES.md"):
        assert words in scripts["files"], words


# ---- files of a release


def test_the_wheel_has_the_license_and_the_commit(release: Path) -> None:
    (wheel,) = release.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        names = {Path(name).name: name for name in files.namelist() if "dist-info" in name or "_data/commit" in name}
        assert files.read(names["LICENSE"]) == (ROOT / "LICENSE").read_bytes()
        assert b"License-Expression: Apache-2.0" in files.read(names["METADATA"])
        head = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, check=True).stdout
        assert files.read(names["commit"]) == head


def test_the_kubectl_plugin_is_the_wheel_with_its_locks_and_the_manifest_names_its_sum(
    release: Path, tmp_path: Path
) -> None:
    manifest = yaml.safe_load((release / "krew.yaml").read_text())
    assert manifest["spec"]["version"] == f"v{rebalancer.__version__}"
    (platform,) = manifest["spec"]["platforms"]
    archive = release / platform["uri"].removeprefix("URL/")
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    with tarfile.open(archive) as files:
        files.extractall(tmp_path / "plugin", filter="data")
    wheel = f"kube_rebalancer-{rebalancer.__version__}-py3-none-any.whl"
    assert {path.name for path in (tmp_path / "plugin").iterdir()} == {
        "LICENSE",
        platform["bin"],
        "requirements-runtime.lock",
        wheel,
    }
    # once set up, it only starts the program; krew calls it by a link
    made = tmp_path / "share" / "kubectl-rebalancer" / wheel.removesuffix(".whl") / "bin" / "rebalancer"
    made.parent.mkdir(parents=True)
    made.write_text('#!/bin/sh\necho "called with $*"\n')
    made.chmod(0o755)
    (tmp_path / "kubectl-rebalancer").symlink_to(tmp_path / "plugin" / platform["bin"])
    env = {"XDG_DATA_HOME": str(tmp_path / "share")}
    assert run(tmp_path / "kubectl-rebalancer", "plan", "-A", env=env) == "called with plan -A\n"


def test_the_plugin_installs_as_the_image_does() -> None:
    launcher, image = (DEPLOY / "krew" / "kubectl-rebalancer").read_text(), (DEPLOY / "install.sh").read_text()
    for words in ("--require-hashes --no-deps --only-binary :all:", "--no-deps --no-index"):
        assert words in launcher
        assert words in image


def test_a_release_has_the_chart_and_the_changelogs_section(release: Path) -> None:
    assert (release / f"rebalancer-{rebalancer.__version__}.tgz").exists()
    changes = (release / "CHANGES.md").read_text()
    assert changes.startswith("## ")
    assert len(re.findall(r"^## ", changes, re.M)) == 1
    assert "### Installation" in changes
    sums = (release / "SHA256SUMS").read_text()
    for name in (".whl", ".tgz", ".tar.gz", ".cdx.json"):
        assert name in sums


def test_the_distribution_is_kube_rebalancer_wherever_it_is_installed() -> None:
    """On the package index `rebalancer` is another project's."""
    assert PROJECT["name"] == "kube-rebalancer"
    tracked = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=True).stdout
    foreign = re.compile(rb"pip3? install\s+(?:-\S+\s+)*['\"]?rebalancer(?![-./\w])")
    assert foreign.search(b"pip install --upgrade '%b[distributed]'" % b"rebalancer")
    files = [ROOT / name for name in tracked.split("\0") if name and (ROOT / name).is_file()]
    assert [str(path) for path in files if foreign.search(path.read_bytes())] == []


def test_the_version_is_one_everywhere() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert {rebalancer.__version__, PROJECT["version"], chart["version"], chart["appVersion"]} == {"0.1.0"}


# ---- the version of what runs


def test_version_shows_the_commit_of_the_checkout(tmp_path: Path) -> None:
    head = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    for arguments in (["version"], ["--version"]):
        said = program(*arguments, cwd=tmp_path)
        assert said.code == 0
        found = re.fullmatch(r"rebalancer (\S+) \(commit ([0-9a-f]{12})(-dirty)?, Python 3\.\S+\)\n", said.out)
        assert found is not None, said.out
        assert (found[1], found[2]) == (rebalancer.__version__, head[:12])


def test_an_installed_program_knows_the_commit_that_it_was_built_from(tmp_path: Path) -> None:
    """And without a commit it says so, wherever it lies."""
    shutil.copytree(ROOT / "rebalancer", tmp_path / "rebalancer", ignore=shutil.ignore_patterns("__pycache__"))

    def said() -> str:
        env = {**os.environ, "PYTHONPATH": str(tmp_path)}
        command = [sys.executable, "-m", "rebalancer", "version"]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True).stdout

    assert "(commit unknown, " in said()
    (tmp_path / "rebalancer" / "_data").mkdir()
    (tmp_path / "rebalancer" / "_data" / "commit").write_text("0123456789abcdef\n")
    assert "(commit 0123456789ab, " in said()


# ---- what CI runs


def test_ci_skips_only_what_needs_the_api_servers_binaries() -> None:
    allowed = ("KUBEBUILDER_ASSETS", "the right to mount")
    assert allowed == MAY_BE_SKIPPED
    for reason in (NEEDS_HELM, NEEDS_ACTIONLINT, NEEDS_KUBECTL):
        assert not any(each in reason for each in allowed), reason
    script = (ROOT / "tests" / "install_real_parts.sh").read_text()
    assert "go install" in script
    assert {"helm", "actionlint"} <= set(re.findall(r"^built (\S+) ", script, re.M))
    for page in ("test_docs_newcomer.py", "test_image_runs.py"):
        assert "skipif" not in (ROOT / "tests" / "deploy" / page).read_text()


def test_a_page_lists_every_placeholder_of_the_repository() -> None:
    page = (ROOT / "docs" / "contributing" / "publish.md").read_text()
    listed = {
        *(ROOT / name for name in re.findall(r"\| `([\w./-]+)` \|", page) if (ROOT / name).is_file()),
        ROOT / "docs" / "contributing" / "publish.md",
        CHART / "README.md",  # made from Chart.yaml
    }
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    texts = {".md", ".yaml", ".yml", ".toml", ""}
    named = {
        ROOT / name
        for name in tracked
        if Path(name).suffix in texts
        and (ROOT / name).is_file()
        and not name.startswith("tests/")
        and re.search(r"https://rebalancer\.dev|@rebalancer\.dev|@rebalancer/\w", (ROOT / name).read_text())
    }
    assert named <= listed, f"not on the page: {sorted(map(str, named - listed))}"
    workflow = (ROOT / ".github" / "workflows" / "release.yaml").read_text()
    settings = set(re.findall(r"\b(?:vars|secrets)\.(\w+)", workflow))
    assert all(f"`{name}`" in page for name in settings), settings
