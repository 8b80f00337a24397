"""Files that ship with the package: inside it when installed, at the top of the repository in a checkout."""

from pathlib import Path


def shipped(name: str) -> Path:
    """The folder `policies` or `migrations`, or the file `commit`, which a checkout doesn't have."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "_data" / name
    return inside if inside.exists() else package.parent / name
