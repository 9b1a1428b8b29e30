"""Errors of the executors.

ClusterError     the Ray cluster cannot be started, joined or used: one line, exit code 2
└── ClusterLost  it died under a study that ran on it: one line, exit code 1
"""


class ClusterError(Exception):
    """The Ray cluster cannot be used; `str` is one line with the remedy."""


class ClusterLost(ClusterError):
    """The cluster, or this driver's node of it, died under the study; the same command goes on."""
