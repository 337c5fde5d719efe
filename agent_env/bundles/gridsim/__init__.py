"""gridsim: the day of a small grid. Read it, commit a schedule, be paid by what it saved.

Splits "train" and "eval" are 24 hours of numbers; "coarse-train" and "coarse-eval" the same
simulation in three blocks of words, for models far too small to count.
"""

from agent_env.bundles.gridsim.gridsim import GridSim

__all__ = ["bundle"]

bundle = GridSim()
