"""Comparisons with other libraries on the same work: `python -m benchmarks.peers`, or `make bench`."""
