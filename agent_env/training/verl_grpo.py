"""GRPO under verl: `python -m agent_env.training.verl_grpo job.json`."""

import sys

from agent_env.training.job import run_program

if __name__ == "__main__":
    sys.exit(run_program("verl_grpo"))
