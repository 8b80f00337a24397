"""Benchmarks: `make bench [ONLY=name]`, one JSON object a line: {bench, figure, value, unit, aim, holds}."""
