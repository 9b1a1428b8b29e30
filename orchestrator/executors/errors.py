"""Errors of the executors.

ClusterError     the Ray cluster cannot be started, joined or used: one line, exit code 2
"""


class ClusterError(Exception):
    """The Ray cluster cannot be used; `str` is one line with the remedy."""
