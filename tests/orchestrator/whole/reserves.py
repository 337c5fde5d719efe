"""`reserves.py BUDGET LINES RUN`: reserve a dollar for each line, and print how many got in."""

from __future__ import annotations

import sys
from datetime import timedelta
from decimal import Decimal

from orchestrator.budget_log import find_budget
from orchestrator.clock import SystemClock
from orchestrator.errors import OverCap
from orchestrator.opened import open_cloud

name, lines, run = sys.argv[1], int(sys.argv[2]), sys.argv[3]
budget, now = find_budget(open_cloud("local"), name), SystemClock().now()
print("ready", flush=True)
sys.stdin.readline()
let_in = 0
for line in range(lines):
    try:
        budget.reserve(run, {f"box-{line}": Decimal(1)}, now + timedelta(hours=1), now)
    except OverCap:
        break
    let_in += 1
print(let_in)
