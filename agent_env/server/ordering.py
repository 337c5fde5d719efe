"""What a numbered frame means for a session that stands where it stands. Pure."""

from __future__ import annotations

from agent_env.server.protocol import FrameError, Reset


def is_again(asked: int | None, last: int) -> bool:
    """Whether the step numbered `asked` is the last one, sent once more; False: it is to be done.

    A step without a number is carried out as it comes. Raises FrameError for one that is neither
    the last nor the next.
    """
    if asked is None or asked == last + 1:
        return False
    if asked == last:
        return True
    right = last + 1
    if asked > right:
        message = f"step {asked} is sent, but step {right} was never seen"
        raise FrameError("EXECUTION_ERROR", message, reason="SEQ_GAP", expected=right)
    message = f"step {asked} was answered long ago; the next is {right}"
    raise FrameError("EXECUTION_ERROR", message, reason="SEQ_OLD", expected=right)


def asked_for(reset: Reset) -> dict[str, object]:
    """What makes two resets the same one."""
    return reset.model_dump(exclude={"deadline_s"}, exclude_none=True)


def is_same_reset(reset: Reset, asked: dict[str, object] | None, last: int) -> bool:
    """Whether the reset began the episode that is played, and is sent once more.

    Without an `episode_id` nobody can say that, and after a step the wish is to start over.
    """
    return last == 0 and reset.episode_id is not None and asked_for(reset) == asked


def not_reset() -> FrameError:
    """For a step before the first reset."""
    message = "this session was never reset; send a reset first"
    return FrameError("EXECUTION_ERROR", message, reason="NOT_RESET")


def timed_out() -> FrameError:
    """For the step that took too long, and for every frame after it but a reset."""
    message = "the step took longer than its deadline; its episode is unscored, reset to go on"
    return FrameError("EXECUTION_ERROR", message, reason="STEP_TIMEOUT")
