"""Sampled reward of a model over a split: `python -m agent_env.training.evaluate job.json`."""

import sys

from agent_env.training.job import run_program

if __name__ == "__main__":
    sys.exit(run_program("evaluate"))
