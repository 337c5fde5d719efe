"""Trainer adapters, and the programs that a job runs."""
