"""Measurements of the library: scripts, and packages that run as `python -m benchmarks.NAME`."""
