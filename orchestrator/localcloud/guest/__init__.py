"""What runs inside a local box: pid 1, an SSH server, and the commands that power it off.

Only the standard library and, in `sshd`, asyncssh: these files are bound into the box by
themselves, without the rest of the package.
"""
