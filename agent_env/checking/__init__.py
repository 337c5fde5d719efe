"""Finds what is wrong with a bundle before a trainer does."""

from agent_env.checking.check import check
from agent_env.checking.finding import Checked, Finding

__all__ = ["Checked", "Finding", "check"]
