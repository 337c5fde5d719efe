"""Measuring a policy on a bundle: episodes played, written down line by line, and summed up."""
