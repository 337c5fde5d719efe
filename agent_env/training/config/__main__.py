from __future__ import annotations

import sys

from agent_env.training.config import main

sys.exit(main(sys.argv[1:]))
