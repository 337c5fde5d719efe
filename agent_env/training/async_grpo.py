"""GRPO whose rollouts go on meanwhile: `python -m agent_env.training.async_grpo job.json`."""

import sys

from agent_env.training.job import run_program

if __name__ == "__main__":
    sys.exit(run_program("async_grpo"))
