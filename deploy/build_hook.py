"""Writes the commit that a wheel is built from into the wheel, as `rebalancer/_data/commit`.

It is REBALANCER_COMMIT, which the image's build sets because its context has no .git, or the checkout's HEAD. Without
both the wheel has no such file.
"""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):
    """Hatchling's hook before a build. An editable installation reads the checkout instead."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file."""
        commit = os.environ.get("REBALANCER_COMMIT") or self._head()
        if version == "editable" or not commit:
            return
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "commit"
        path.write_text(f"{commit}\n")
        build_data["force_include"][str(path)] = "rebalancer/_data/commit"

    def _head(self) -> str:
        if not (Path(self.root) / ".git").exists():
            return ""
        command = ["git", "-C", self.root, "rev-parse", "HEAD"]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        except OSError:
            return ""
