"""The env server."""
