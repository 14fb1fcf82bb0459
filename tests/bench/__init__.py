"""Benchmarks. `python -m tests.bench` runs those that need servers; see `suite`."""
