"""`make gpu-check`: can jobs train on this machine's GPU with the pinned packages?

At most eight minutes. The tiny model is trained under Unsloth through `AgentEnv.factory`, in 16
and in 4 bits, with evals, and with an env server that is killed in the middle of a step. Each step
is a process with a time limit of its own; one that fails doesn't stop the next.
"""
