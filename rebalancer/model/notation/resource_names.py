"""Names of resources. Commands import them at every start, so nothing is imported here."""

CPU = "cpu"
"""The name of CPU among the resources."""

MEMORY = "memory"
"""Besides CPU, the resource that is read without a line in the policy."""
