"""The key that signs links to proposals."""

from pathlib import Path

from rebalancer.bootstrap.process.settings import Settings
from rebalancer.model.decisions.approval_links import LEAST_KEY_BYTES, ApprovalLinks
from rebalancer.model.errors import ConfigError
from rebalancer.model.secrets import remember


def approval_links(settings: Settings) -> ApprovalLinks | None:
    """Links with the key of the settings; None without a key. Raises ConfigError for a file that can't be used."""
    path = settings.approval_key_file
    if path is None:
        return None
    try:
        key = Path(path).read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"{path}: the approval key can't be read: {error.strerror or error}") from None
    if len(key) < LEAST_KEY_BYTES:
        raise ConfigError(f"{path}: expected an approval key of at least {LEAST_KEY_BYTES} bytes, got {len(key)}")
    remember(key.decode("utf-8", "replace"))
    return ApprovalLinks(key=key, base=(settings.dashboard_url or "").rstrip("/"))
