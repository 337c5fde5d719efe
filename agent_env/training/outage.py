"""A GRPO whose env server dies and comes back: `python -m agent_env.training.outage job.json`."""

import sys

from agent_env.training.job import run_program

if __name__ == "__main__":
    sys.exit(run_program("outage"))
