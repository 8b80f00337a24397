"""Every command that a page names can be given: ours by our own parser, helm's and kubectl's by what is in the tree."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from bench.__main__ import BENCHES
from rebalancer.cli.main import UsageError, app
from tests.deploy.readers.chart_schema import violations
from tests.deploy.readers.manifests import CHART, KUSTOMIZE, NAMESPACE, ROOT
from tests.deploy.readers.pages import OPERATIONS, WRITTEN, Line, blocks, commands, in_text
from tests.deploy.test_values import SCHEMA, VALUES, merged

COMMANDS = commands(WRITTEN)
ROOT_COMMAND = typer.main.get_command(app)
OURS = "rebalancer"
PROGRAMS = {
    OURS, "helm", "kubectl", "docker", "make", "git", "python3", "pip", ".", "cp", "sed", "cat", "until", "do", "done",
    "export", "kill",
}  # fmt: skip
OPTIONS_OF_HELM = {"--namespace", "--create-namespace", "--set", "--set-file", "--values", "--reuse-values"}
"""That pages may use; each of them was tried."""
OTHERS_FOLDERS = {"deploy/kustomize/overlays/mine"}
"""That a page tells its reader to make."""


def ours(lines: list[Line]) -> Iterator[Line]:
    """Calls of our program, also those inside a container."""
    for line in lines:
        if line.words[0] == OURS:
            yield line
        elif "--" in line.words and line.words[line.words.index("--") + 1] == OURS:
            yield Line(line.page, line.words[line.words.index("--") + 1 :])


def parse(words: tuple[str, ...]) -> None:
    """As the program would, without running it. Raises UsageError or KeyError."""
    command: Any = ROOT_COMMAND
    rest = list(words[1:])
    while getattr(command, "commands", None) and rest and not rest[0].startswith("-"):
        command = command.commands[rest.pop(0)]
    command.make_context(OURS, rest)


def options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


# ---- ours


@pytest.fixture(autouse=True)
def in_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """The container's environment names the policy."""
    monkeypatch.setenv("REBALANCER_POLICY", "/etc/rebalancer/policy.yaml")


def synopsis(line: Line) -> bool:
    """Whether it shows what may be given, rather than a call."""
    return "[" in " ".join(line.words)


@pytest.mark.parametrize("line", sorted({line for line in ours(COMMANDS) if not synopsis(line)}), ids=str)
def test_every_call_of_ours_in_a_block_can_be_parsed(line: Line) -> None:
    parse(line.words)


def test_a_wrong_call_would_have_been_told() -> None:
    for words in (("rebalancer", "plans"), ("rebalancer", "plan", "--nodes"), ("rebalancer", "pause", "cluster")):
        with pytest.raises((KeyError, UsageError)):
            parse(words)
    parse(("rebalancer", "pause", "cluster", "--reason", "why"))


@pytest.mark.parametrize("line", sorted({*in_text(WRITTEN, OURS), *filter(synopsis, ours(COMMANDS))}), ids=str)
def test_every_command_and_option_of_ours_in_running_text_exists(line: Line) -> None:
    command: Any = ROOT_COMMAND
    rest = list(line.words[1:])
    while getattr(command, "commands", None) and rest and re.fullmatch(r"[a-z]+", rest[0]):
        command = command.commands[rest.pop(0)]
    named = {word.split("=")[0].rstrip("…") for word in rest if re.match(r"-{1,2}[a-zA-Z]", word)}
    assert named <= options(command), line


# ---- everything else


def test_pages_call_only_programs_that_these_tests_know() -> None:
    strange = {line.words[0] for line in commands(OPERATIONS)} - PROGRAMS
    assert strange == set()


HELM = [line for line in commands(OPERATIONS) if line.words[0] == "helm"]


def given(words: tuple[str, ...], option: str) -> list[str]:
    return [after for before, after in pairwise(words) if before == option]


@pytest.mark.parametrize("line", HELM, ids=str)
def test_what_helm_is_told_fits_the_chart(line: Line) -> None:
    words = line.words
    assert {word for word in words if word.startswith("--")} <= OPTIONS_OF_HELM
    assert "rebalancer" in words
    if words[1] in ("install", "upgrade"):
        assert ROOT / words[3] == CHART
    assert given(words, "--namespace") in ([], [NAMESPACE])
    values: dict[str, Any] = {}
    for pair in given(words, "--set"):
        path, _, value = pair.partition("=")
        here: Any = yaml.safe_load(value)
        for part in reversed(path.split(".")):
            here = {part: here}
        values = merged(values, here)
    for pair in given(words, "--set-file"):
        values = merged(values, {pair.partition("=")[0]: "text of the file"})
    assert list(violations(merged(VALUES, values), SCHEMA, SCHEMA)) == []


def test_helm_is_called_somewhere() -> None:
    assert {line.words[1] for line in HELM} == {"install", "upgrade", "uninstall", "rollback"}


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.words[0] in ("kubectl", "docker", "cp")], ids=str)
def test_every_path_and_object_that_is_named_is_there(line: Line) -> None:
    paths = {
        word for word in line.words if re.match("(deploy|policies|docs)/", word) and word != f"deploy/{OURS}"
    } - OTHERS_FOLDERS
    assert {path for path in paths if not (ROOT / path).exists()} == set()
    for folder in given(line.words, "-k"):
        assert folder in OTHERS_FOLDERS or (ROOT / folder / "kustomization.yaml").exists()
    if line.words[0] == "kubectl":
        objects = {word for word in line.words if word.startswith(("deploy/", "svc/"))} - paths
        known = {f"deploy/{OURS}", f"svc/{OURS}", "svc/prometheus-operated"}
        assert objects - OTHERS_FOLDERS <= known


@pytest.mark.parametrize("name", ["rebalancer-database"])
def test_the_secret_that_the_pages_make_is_the_one_that_is_read(name: str) -> None:
    made = {line.words[line.words.index("generic") + 1] for line in commands(OPERATIONS) if "generic" in line.words}
    assert name in made
    assert VALUES["database"]["postgresql"] == {"secretName": name, "secretKey": "url"}
    overlay = (KUSTOMIZE / "overlays" / "postgres" / "deployment.yaml").read_text()
    assert f"secretKeyRef: {{name: {name}, key: url}}" in overlay


def targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def benches() -> set[str]:
    return set(BENCHES)


@pytest.mark.parametrize(
    "line", [line for line in [*in_text(WRITTEN, "make"), *COMMANDS] if line.words[0] == "make"], ids=str
)
def test_every_target_and_benchmark_exists(line: Line) -> None:
    assert line.words[1] in targets()
    for word in line.words[2:]:
        key, _, value = word.partition("=")
        assert key in ("ONLY", "ARGS"), line
        assert key != "ONLY" or value in benches()


@pytest.mark.parametrize("page", OPERATIONS, ids=lambda page: page.stem)
def test_every_block_says_what_it_is(page: Path) -> None:
    text = page.read_text()
    opened = re.findall(r"^ *```(\w*)$", text, flags=re.MULTILINE)[::2]
    assert set(opened) <= {"sh", "yaml", "sql"}
    assert len(blocks(page, "sh", "yaml", "sql")) == len(opened)
