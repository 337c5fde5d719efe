"""Bundles of tasks that ship with the package."""
