"""Where workers are forked: a process that has loaded everything and runs nothing.

Forking from a process with an event loop, threads and open connections would hand all of that to
the child. The nursery ends with the process that made it, and the workers end with the nursery.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


class Nursery:
    """Make it before the event loop and any thread."""

    def __init__(self, work: Callable[[socket.socket], None]) -> None:
        """`work` is what a worker does with its end of a channel."""
        self._end, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        if os.fork() == 0:
            self._end.close()
            _apart(lambda: _forever(theirs, work), parent)
        theirs.close()

    def spawn(self, end: socket.socket) -> None:
        """Start a worker on this end of a channel, which is closed here."""
        socket.send_fds(self._end, [b"spawn"], [end.fileno()])
        end.close()


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends; exits if that has happened."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _apart(work: Callable[[], None], parent: int) -> None:
    """Run a forked process to its end, never back into its parent's code."""
    status = 1
    try:
        die_with(parent)
        work()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _forever(end: socket.socket, work: Callable[[socket.socket], None]) -> None:
    # Whoever stops the server tells the front; Ctrl-C in a terminal reaches every process.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    nursery = os.getpid()
    while True:
        said, fds, _, _ = socket.recv_fds(end, 16, 1)
        if not said:
            return
        if os.fork() == 0:
            end.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _apart(lambda: work(socket.socket(fileno=fds[0])), nursery)  # noqa: B023 - runs at once
        os.close(fds[0])
