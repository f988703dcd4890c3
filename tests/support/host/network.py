"""Networks for tests, of several hosts on this machine, or the reason why there can be none.

def test_it():
    with network(hosts=2, loss=0.01) as made:
        run_ranks(body, 4, hosts=made.hosts)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from benchmarks.network.namespaces import Network, boards_missing, missing

__all__ = ["network"]


@contextmanager
def network(**options: Any) -> Iterator[Network]:
    """Yield a network with these options of `Network`; skip the test if none can be made."""
    if reason := boards_missing() if options.get("boards") else missing():
        pytest.skip(reason)
    with Network(**options) as made:
        yield made
