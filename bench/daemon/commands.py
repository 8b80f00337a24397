"""CPU seconds of short commands, from their start to their end: `python -m bench.daemon.commands [--turns N]`.

Each command runs in a process of its own against the practice cluster `demo` and a SQLite file; user and system seconds
of that process count, the smallest of some turns. With bytecode, as an installed program has it. `--against FOLDER`
runs the same commands of another checkout in turns with these and prints the ratio too. Prints one JSON object a line;
exit code 1 when an aim is missed.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from rebalancer.bootstrap.process.paths import shipped
from rebalancer.lab import Lab
from rebalancer.store import upgrade

HERE = Path(__file__).parents[2]
TURNS, AIM_SECONDS = 5, 0.8
COMMANDS = {
    "version": ["version"],
    "policy validate": ["policy", "validate"],
    "status": ["status"],
    "proposals": ["proposals"],
    "report": ["report"],
    "evictions": ["evictions"],
    "limits": ["limits"],
    "plan": ["plan"],
    "explain node": ["explain", "node", "gen-1"],
}


def environment(root: Path, lab: Lab, folder: Path) -> dict[str, str]:
    """That of a user, for the program in `root`."""
    policy = folder / "policy.yaml"
    text = (shipped("policies") / "demo.yaml").read_text(encoding="utf-8")
    lines = [f"    url: {lab.prometheus_url}" if " url: " in line else line for line in text.splitlines()]
    policy.write_text("\n".join(lines), encoding="utf-8")
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return own | {
        "PYTHONPATH": str(root),
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "KUBECONFIG": str(lab.write_kubeconfig(folder / "kubeconfig")),
        "REBALANCER_DATABASE": f"sqlite:///{folder / 'ledger.db'}",
        "REBALANCER_HISTORY_DIR": str(folder / "history"),
        "REBALANCER_POLICY": str(policy),
    }


def spent(arguments: list[str], env: dict[str, str], folder: Path) -> float:
    """CPU seconds of one call."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "rebalancer", *arguments]
    subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def tell(figure: str, value: float, unit: str, aim: float | None = None) -> bool:
    """Print a figure; whether it misses its aim."""
    missed = aim is not None and value > aim
    line = {"bench": "commands", "figure": figure, "value": round(value, 2), "unit": unit, "aim": aim}
    print(json.dumps(line | {"holds": not missed}), flush=True)
    return missed


def main() -> int:
    """Measure and print; 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=TURNS, help="of each command; the smallest counts")
    parser.add_argument("--only", choices=COMMANDS, action="append", help="measure this command; may be repeated")
    parser.add_argument("--against", type=Path, help="folder of another checkout")
    arguments = parser.parse_args()
    roots = [HERE, *([arguments.against.absolute()] if arguments.against else [])]
    missed = False
    with ExitStack() as stack:
        lab = stack.enter_context(Lab.start("demo"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="commands-bench-")))
        upgrade(f"sqlite:///{folder / 'ledger.db'}")
        worlds = [environment(root, lab, folder) for root in roots]
        for name in arguments.only or COMMANDS:
            for env in worlds:
                spent(COMMANDS[name], env, folder)  # writes the bytecode
            turns = [[spent(COMMANDS[name], env, folder) for env in worlds] for _ in range(arguments.turns)]
            least = [min(each) for each in zip(*turns, strict=True)]
            missed |= tell(name, least[0], "CPU s", AIM_SECONDS)
            for other in least[1:]:
                tell(f"{name}, there", other, "CPU s")
                tell(f"{name}, here of there", least[0] / other, "ratio")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
