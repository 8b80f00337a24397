"""Files of practice clusters and demos. They are in the user's state folder, so none is left in the current one."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rebalancer.model.errors import ConfigError

if TYPE_CHECKING:
    from rebalancer.lab import Lab


def state_folder() -> Path:
    """`$XDG_STATE_HOME/rebalancer`, or `~/.local/state/rebalancer`. Raises ConfigError."""
    try:
        base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise ConfigError(f"the state folder: {error}: set XDG_STATE_HOME to a writable folder") from None
    return Path(base) / "rebalancer"


def demo_database() -> Path:
    """The database of the last demo."""
    return state_folder() / "demo.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabFiles:
    """What a practice cluster leaves for its users until it ends."""

    folder: Path
    kubeconfig: Path
    policies: Path
    """The shipped policies, with the cluster's Prometheus in them."""
    environment: dict[str, str]
    """Variables for kubectl and for this program: kubeconfig, and a database and a history of the cluster's own."""

    def write_env(self) -> None:
        """Write `env`, a file with `export` lines for the shell; once everything is ready. It appears whole, as scripts
        wait for it."""
        lines = "".join(f"export {name}='{each}'\n" for name, each in self.environment.items())
        written = self.folder / "env.new"
        written.write_text(lines, encoding="utf-8")
        written.replace(self.folder / "env")


@contextmanager
def lab_files(lab: "Lab", *, kubeconfig: Path | None = None) -> Iterator[LabFiles]:
    """Write the files of a running practice cluster, to be removed when it ends. `kubeconfig` is kept where it is.

    Raises ConfigError.
    """
    from rebalancer.bootstrap.process.paths import shipped

    folder = state_folder() / f"lab-{lab.url.rpartition(':')[2]}"
    files = LabFiles(
        folder=folder,
        kubeconfig=kubeconfig.absolute() if kubeconfig else folder / "kubeconfig",
        policies=folder / "policies",
        environment={
            "KUBECONFIG": str(kubeconfig.absolute() if kubeconfig else folder / "kubeconfig"),
            "REBALANCER_DATABASE": f"sqlite:///{folder / 'rebalancer.db'}",
            "REBALANCER_HISTORY_DIR": str(folder / "history"),
        },
    )
    shutil.rmtree(folder, ignore_errors=True)  # of one that was killed
    try:
        files.policies.mkdir(parents=True)
        lab.write_kubeconfig(files.kubeconfig)
        for policy in sorted(shipped("policies").glob("*.yaml")):
            text = re.sub(r"(?m)^( +url:) .*$", rf"\g<1> {lab.prometheus_url}", policy.read_text(encoding="utf-8"))
            (files.policies / policy.name).write_text(text, encoding="utf-8")
        yield files
    except OSError as error:
        named = f"{error.filename}: {error.strerror or error}"
        raise ConfigError(f"lab: {named}: expected a file that can be written (XDG_STATE_HOME moves it)") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
