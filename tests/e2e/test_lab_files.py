"""Files of `rebalancer lab` and `run --lab`: in the state folder while it runs, none in the current one."""

import re
import signal
import time
from pathlib import Path

import pytest

from rebalancer.bootstrap.process.paths import shipped
from tests.programs.cli import begin, rebalancer


def _exports(env: Path) -> dict[str, str]:
    return dict(re.findall(r"^export (\w+)='(.*)'$", env.read_text(), re.MULTILINE))


def _started(state: Path) -> Path:
    """The folder of the practice cluster that was started."""
    deadline = time.monotonic() + 90.0
    while not (found := list(state.glob("rebalancer/lab-*/env"))):
        assert time.monotonic() < deadline, "no practice cluster"
        time.sleep(0.1)
    return found[0].parent


@pytest.mark.parametrize("words", [["lab"], ["run", "--lab", "demo", "-f", str(shipped("policies") / "demo.yaml")]])
def test_the_lab_prints_its_kubeconfig_and_leaves_no_file(words: list[str], tmp_path: Path) -> None:
    here, state = tmp_path / "here", tmp_path / "state"
    here.mkdir()
    env = {"XDG_STATE_HOME": str(state), "REBALANCER_INSECURE_NO_AUTH": "true", "REBALANCER_LISTEN": "127.0.0.1:0"}
    printed = tmp_path / "printed"
    with printed.open("wb") as output:
        running = begin(*words, cwd=here, env=env, stderr=output.fileno(), cold=True)
    try:
        folder = _started(state)
        exports = _exports(folder / "env")
        # a daemon may not have made its own yet
        env |= {"REBALANCER_DATABASE": f"sqlite:///{tmp_path / 'plan.db'}"} if words[0] == "run" else {}
        plan = rebalancer(
            "plan", "--no-wait", "-f", folder / "policies" / "demo.yaml", cwd=here, env={**exports, **env}
        )
        assert plan.code == 0, plan.err
        assert f"export KUBECONFIG={folder / 'kubeconfig'}" in printed.read_text()
        assert exports["KUBECONFIG"] == str(folder / "kubeconfig")
        assert (folder / "kubeconfig").stat().st_mode & 0o077 == 0
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(timeout=60)
    assert list(here.iterdir()) == []
    assert not folder.exists()


def test_the_lab_writes_the_kubeconfig_that_is_named(tmp_path: Path) -> None:
    state = tmp_path / "state"
    running = begin("lab", "--kubeconfig", "mine", cwd=tmp_path, env={"XDG_STATE_HOME": str(state)}, cold=True)
    try:
        assert _exports(_started(state) / "env")["KUBECONFIG"] == str(tmp_path / "mine")
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(timeout=60)
    assert "current-context: lab" in (tmp_path / "mine").read_text()


def test_a_state_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = rebalancer("lab", cwd=tmp_path, env={"XDG_STATE_HOME": str(tmp_path / "file")})
    assert result.code == 4
    assert "XDG_STATE_HOME" in result.error
