"""The policy file while the daemon runs."""

from pathlib import Path

import pytest

from rebalancer.daemon.reload import PolicyFile
from rebalancer.model.errors import ConfigError
from rebalancer.policy import RebalancerPolicy, load_policy

TEXT = """
apiVersion: rebalancer.dev/v1alpha1
kind: RebalancerPolicy
cluster: one
pools: [{name: all, selector: {}, thresholds: {high: 75, target: 65, low: 50}}]
usage: {prometheus: {url: "http://127.0.0.1:9090"}}
strategies: [{name: LowNodeUtilization}]
"""


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    write(file, TEXT)
    return file


def watched(path: Path) -> PolicyFile:
    def read() -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{path.name}: {error.strerror}") from None

    return PolicyFile(read=read, parse=lambda data: load_policy(data, source=path.name))


def reload(file: PolicyFile) -> bool:
    return file.reload(lambda _: None)


def high(file: PolicyFile) -> float:
    thresholds = file.policy.pools[0].thresholds
    assert thresholds is not None
    return thresholds.high


def test_the_same_content_written_again_is_no_reload(path: Path) -> None:
    file = watched(path)
    write(path, TEXT)
    assert not reload(file)
    assert file.reloads.succeeded == 0


def test_new_content_is_active_at_once(path: Path) -> None:
    file = watched(path)
    write(path, TEXT.replace("high: 75", "high: 80"))
    assert reload(file)
    assert high(file) == 80
    assert file.reloads.succeeded == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TEXT.replace("high: 75", "high: 60"), "policy.yaml:5"),
        ("{", "not YAML"),
        ("", "policy.yaml"),
        (TEXT.replace("cluster: one", "cluster: two"), "expected one as before, got two"),
    ],
)
def test_what_can_not_be_used_changes_nothing_and_is_logged_once(path: Path, text: str, words: str) -> None:
    file = watched(path)
    write(path, text)
    assert not reload(file)
    assert not reload(file)
    assert high(file) == 75
    assert file.reloads.failed == 1
    assert words in file.reloads.error


def test_a_file_that_is_away_for_a_moment_changes_nothing(path: Path) -> None:
    file = watched(path)
    path.unlink()
    assert not reload(file)
    assert not reload(file)
    assert file.reloads.failed == 1
    write(path, TEXT)
    assert not reload(file)
    assert file.reloads.error == ""


def test_a_mistake_that_is_taken_back_is_over_without_a_reload(path: Path) -> None:
    file = watched(path)
    write(path, "{")
    reload(file)
    write(path, TEXT)
    assert not reload(file)
    assert (file.reloads.error, file.reloads.succeeded) == ("", 0)


def test_the_first_reading_must_succeed(path: Path) -> None:
    write(path, "{")
    with pytest.raises(ConfigError):
        watched(path)


def test_what_could_not_be_activated_is_tried_again_and_counted_once(path: Path) -> None:
    def fail(_: RebalancerPolicy) -> None:
        raise ConfigError("scheduler.yaml: expected it to be readable")

    file = watched(path)
    write(path, TEXT.replace("high: 75", "high: 80"))
    for _ in range(3):
        assert not file.reload(fail)
    assert high(file) == 75
    assert (file.reloads.failed, file.reloads.succeeded) == (1, 0)
    assert reload(file)
    assert (high(file), file.reloads.succeeded, file.reloads.error) == (80, 1, "")
