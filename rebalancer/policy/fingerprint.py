"""A hash by which two readings of a policy are the same."""

import hashlib
import json
from pathlib import Path

from rebalancer.model.errors import ConfigError
from rebalancer.policy.schema.policy import RebalancerPolicy


def policy_hash(policy: RebalancerPolicy) -> str:
    """SHA-256 over the values of the policy and the content of the file that it names; comments, order of keys and
    defaults that are written out don't count. Raises ConfigError where that file can't be read."""
    values = policy.model_dump(mode="json", by_alias=True)
    file = policy.scheduler.config_file
    if file is not None:
        try:
            values["scheduler"]["configFile"] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        except OSError as error:
            raise ConfigError(f"{file}: {error.strerror or error}: expected a readable file") from None
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
