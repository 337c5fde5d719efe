"""Does the hub have the model? One question with a bound, before anything asks it in earnest.

The hub's own client tries each file again and again: a name that is wrong, or a hub that doesn't
answer, would take it a minute and a half, and then be told as a missing tokenizer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module

import httpx

from agent_env.errors import AgentEnvError
from agent_env.training.preflight.versions import installed

ASK_S = 5.0
"""Until it must be connected, and until it must have answered."""


def hub_faults(source: str, named: str, *, cached: bool) -> Iterator[str]:
    """That there is no such model, or it isn't given to whoever asks.

    `cached`: it can be loaded without the hub. Raises AgentEnvError when the hub doesn't answer
    and it isn't. Without the hub's client nothing is asked.
    """
    if installed("huggingface_hub") is None:
        return
    hub, endpoint = import_module("huggingface_hub"), os.environ.get("HF_ENDPOINT")
    try:
        hub.HfApi(endpoint or None).model_info(source, timeout=ASK_S)
    except hub.errors.RepositoryNotFoundError:
        token = "" if hub.get_token() else ", or it is private: set HF_TOKEN"
        yield f"{named}: the hub has no model {source!r}{token}"
    except hub.errors.HfHubHTTPError:
        return  # it answers: whether it gives the files is seen when they are fetched
    except (OSError, httpx.HTTPError) as error:
        if not cached:
            where = f" at {endpoint}" if endpoint else ""
            why = str(error) or type(error).__name__
            raise AgentEnvError(
                f"{named}: {source!r} is no folder here, and the hub{where} doesn't answer"
                f" ({why}): is there a network?"
            ) from None
