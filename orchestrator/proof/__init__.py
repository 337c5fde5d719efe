"""`gpurun kill-proof`: every enforcer by itself really ends a box, shown on the smallest boxes.

The proof runs what runs run: the same session, bucket, network, roles, launch, schedules, user
data, agent, sweep and teardown. Only its boxes differ: each is left to one enforcer alone.
"""
