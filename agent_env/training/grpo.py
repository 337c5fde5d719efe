"""GRPO with evals before, during and after: `python -m agent_env.training.grpo job.json`."""

import sys

from agent_env.training.job import run_program

if __name__ == "__main__":
    sys.exit(run_program("grpo"))
