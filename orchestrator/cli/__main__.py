"""`python -m orchestrator.cli` is `gpurun`."""

from orchestrator.cli import main

main()
