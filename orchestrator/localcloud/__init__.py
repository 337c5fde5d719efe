"""An AWS to rehearse on: strict rules, boxes that boot, schedules that fire, a bill."""
