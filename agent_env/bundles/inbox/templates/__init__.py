"""The kinds of task, each a function from random numbers to a story."""

from agent_env.bundles.inbox.templates.choice import choice
from agent_env.bundles.inbox.templates.invoice import invoice
from agent_env.bundles.inbox.templates.meeting import meeting
from agent_env.bundles.inbox.templates.newsletter import newsletter
from agent_env.bundles.inbox.templates.order import order

__all__ = ["TEMPLATES"]

TEMPLATES = (invoice, order, meeting, newsletter, choice)
"""Task `i` of a split is of the kind `i` modulo their number."""
