"""Warm start of a model: `python -m agent_env.training.sft job.json`."""

import sys

from agent_env.training.job import run_program

if __name__ == "__main__":
    sys.exit(run_program("sft"))
