"""inbox: do what the owner of a mailbox asks, twice; the second request follows from the first.

Splits "train" and "eval": five kinds of task, each over a mailbox of its own.
"""

from agent_env.bundles.inbox.inbox import Inbox

__all__ = ["bundle"]

bundle = Inbox()
