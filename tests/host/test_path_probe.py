"""The probe of the paths between hosts judges by all that has come."""

from afflux.group.forming.path_probe import LANES, PathProbe, run_probes

KEY = b"k" * 16


def test_what_came_while_a_host_was_held_up_counts():
    """A busy machine may not run a host until its time is over: its socket has the packets."""
    sender, held_up = (PathProbe("127.0.0.1", KEY, own) for own in range(2))
    try:
        sender.begin({1: held_up.address})
        held_up.begin({0: sender.address})
        sender.send(all_sizes=False)
        found = []
        run_probes([held_up], lambda: found.append(dict(held_up.found)), lambda: True, limit_s=0.0)
        assert found == [{0: max(LANES)}]
    finally:
        sender.close()
        held_up.close()
