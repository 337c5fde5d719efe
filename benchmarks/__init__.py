"""Measurements, not tests: `make bench` prints each beside its limit as a ratio."""
