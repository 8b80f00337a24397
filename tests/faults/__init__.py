"""Faults and attacks that are survived, each with its tests: `make faults`."""
