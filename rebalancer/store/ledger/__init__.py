"""The ledger of evictions: limits, reservations, outcomes."""
