"""Every way agent_env can fail, one class per thing a person or a trainer would do differently.

AgentEnvError
├── BundleError            the bundle's definition is wrong
│   └── BundleNotFound     there is no such bundle; the message names those that are installed
├── TaskNotFound           no such split or index; the message names the nearest
├── NotInstalled           a package that only trainers need is missing; the message installs it
├── CantListen             the server's address is taken, or isn't one
├── JournalError           the server's journal folder can't be used
├── NoRoomToWork           a worker can't run within the bound on its memory
├── TokenMissing           the variable that should hold the server's token isn't set
├── PolicyError            a policy that can't be used, or whose own machinery failed
├── ResultsError           a results file can't be read or written, or is of another measurement
├── ToolError              a tool's answer to the model: what was wrong with the call
│   ├── ToolNotFound
│   └── InvalidArguments
├── TooManyUnscored        a trainer's recent rollouts were mostly lost: it would train on nothing
├── RewardUndefined        several scores and nothing that says how they make one reward
└── SessionError           between a client and its server; the rollout is unscored
    ├── ServerDown         refuses connections, or doesn't answer in time
    ├── AtCapacity         the server is there, all its sessions are taken
    ├── Unauthorized       the server wants a token, or another one
    ├── SessionLost        the episode can't be gone on with
    │   └── SessionDiverged    rebuilt, it didn't say what it had said before
    ├── StepTimeout        no reply within the call's budget
    ├── JournalFull        the server can't write the step down
    ├── NotReset           a step before the first reset
    ├── EnvError           the environment raised; the episode can't go on
    │   └── EpisodeFailed      in mid-episode, as an environment of a trainer tells it
    ├── WrongSplit         a row of a split that the factory's environments aren't made for
    └── ProtocolError      a frame that can't be read, or isn't the answer to ours
        └── InvalidAction      the server refused a frame; nothing happened
"""

from __future__ import annotations


class AgentEnvError(Exception):
    """Base of all errors raised by agent_env on purpose."""


class BundleError(AgentEnvError):
    """The bundle's definition is wrong."""


class BundleNotFound(BundleError):
    """Nothing is there by that name."""


class TaskNotFound(AgentEnvError):
    """The bundle has no such split, or the split no such index."""


class NotInstalled(AgentEnvError):
    """A package that only trainers need isn't installed; `extra` is ours that brings it."""

    def __init__(self, message: str, *, extra: str | None = None) -> None:
        if extra is not None:
            message += (
                f": make {extra}-setup, or pip install '.[{extra}]' in this package's repository"
            )
        super().__init__(message)


class CantListen(AgentEnvError):
    """The server can't listen on that address."""


class JournalError(AgentEnvError):
    """The folder for the server's journals can't be written to, or another server has it."""


class NoRoomToWork(AgentEnvError):
    """The bound on a worker's memory is below what a worker needs before any task has begun."""


class PolicyError(AgentEnvError):
    """A policy can't be used, or its own machinery failed: an endpoint, a model, a function."""


class ResultsError(AgentEnvError):
    """A results file can't be read or written, or holds another measurement than is asked for."""


class TokenMissing(AgentEnvError):
    """The environment variable that should hold the server's token isn't set."""


class TooManyUnscored(AgentEnvError):
    """More of the recent rollouts are unscored than the run may have."""


class ToolError(AgentEnvError):
    """Raised by a task's tool: the model reads the message and the episode goes on.

    Anything else that a tool raises is a fault of the environment: the episode ends unscored.
    """


class ToolNotFound(ToolError):
    """The task has no tool of that name."""


class InvalidArguments(ToolError):
    """The arguments don't fit the tool's schema."""


class RewardUndefined(AgentEnvError):
    """A task recorded several scores and nothing says which of them is the reward."""


class SessionError(AgentEnvError):
    """Something between a client and its server failed; never the model's doing."""


class ServerDown(SessionError):
    """The server refuses connections, or doesn't answer."""


class AtCapacity(SessionError):
    """Every session of the server is taken.

    `most` is how many it has, where that is fewer than were asked for: waiting helps nobody.
    """

    def __init__(self, message: str, *, most: int | None = None) -> None:
        super().__init__(message)
        self.most = most


class Unauthorized(SessionError):
    """The server has a token, and this client has none or another."""


class SessionLost(SessionError):
    """The episode can't be gone on with: the server doesn't have it any more."""


class SessionDiverged(SessionLost):
    """The episode was rebuilt and didn't say what it had said before: its task isn't
    deterministic."""


class StepTimeout(SessionError):
    """No reply within the call's budget; whether the step applied is unknown."""


class JournalFull(SessionError):
    """The server has no room to write the step down, so it won't carry it out."""


class NotReset(SessionError):
    """A step on a session that was never reset."""


class EnvError(SessionError):
    """The environment raised."""


class EpisodeFailed(EnvError):
    """The environment failed in mid-episode."""


class WrongSplit(SessionError):
    """A dataset row of a split that the factory's environments aren't made for."""


class ProtocolError(SessionError):
    """A frame can't be read, or isn't the answer to the one that was sent."""


class InvalidAction(ProtocolError):
    """The server refused the frame: an unknown task, argument or field. Nothing happened."""
