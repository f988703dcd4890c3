"""Whether ranks on this machine would sum in shared memory."""

import contextlib
import os
import secrets
import socket

from afflux.group.settings.aggregator_url import AggregatorUrl

__all__ = ["why_not_shared"]


def why_not_shared(aggregator: AggregatorUrl) -> str:
    """Return what keeps ranks here from sharing memory; empty if nothing does.

    Args:
        aggregator: Value of AFFLUX_AGGREGATOR.
    """
    if not aggregator.may_share:
        return f"AFFLUX_AGGREGATOR={aggregator} asks for something else"
    try:
        os.close(os.memfd_create("afflux-info"))
    except (OSError, AttributeError) as error:
        return f"this system has no anonymous memory files: {error}"
    try:
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as probe:
            probe.bind(f"\0afflux-info-{secrets.token_hex(8)}")
    except OSError as error:
        return f"this system has no abstract Unix sockets: {error}"
    return ""
