"""Writes docs/images/demo.svg, a picture of a terminal in which `rebalancer demo` ran: its real output, shortened.

`python docs/recording.py [FILE]`
"""

import argparse
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.text import Text

PICTURE = Path(__file__).parent / "images" / "demo.svg"
COLUMNS = 80
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
ADDRESS = re.compile(r"^Practice cluster at .*?\n\n", re.DOTALL)
"""Its port differs each time."""
REFUSALS = re.compile(r"^Not evicted\n.*?(?=^─)", re.MULTILINE | re.DOTALL)


def output_of_demo() -> str:
    """What the demo prints on a terminal, with colours."""
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    for name in ("NO_COLOR", "XDG_STATE_HOME", "REBALANCER_DATABASE"):
        environment.pop(name, None)
    with tempfile.TemporaryDirectory() as folder:
        environment["HOME"] = folder
        done = subprocess.run(
            [sys.executable, "-m", "rebalancer", "demo"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return done.stdout.replace(folder, "~")


def picture(output: str) -> str:
    """The SVG of a terminal that shows the command and its output. It loads no fonts."""
    console = Console(record=True, file=io.StringIO(), width=COLUMNS, force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(f"$ rebalancer demo\n{shortened(output)}"))
    svg_format = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title="rebalancer demo", code_format=svg_format, unique_id="demo") + "\n"


def shortened(output: str) -> str:
    """Without the address and the list of refusals."""
    coloured = {ESCAPE.sub("", line): line for line in output.splitlines()}
    kept = REFUSALS.sub("[...]\n\n", ADDRESS.sub("", ESCAPE.sub("", output)))
    return "\n".join(coloured.get(line, line) for line in kept.splitlines())


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=PICTURE)
    parser.parse_args().file.write_text(picture(output_of_demo()))


if __name__ == "__main__":
    main()
