"""A board under a flood answers few ARP requests: ranks that get results do not depend on any."""

import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.support.host import serving
from tests.support.host.network import network
from tests.support.host.ranks import run_ranks, values

SUMS_S = 5.0
"""Several times as long as a host's kernel asks where a neighbour is until it gives up."""

SOON = {"base_reachable_time_ms": 300, "delay_first_probe_time": 1, "retrans_time_ms": 100}
"""Of the hosts' kernels, so that a test does not take the minutes that these are otherwise."""


def sum_for_a_while(rank: int, size: int, silence: str) -> int:
    """Sum, and go on once the aggregator is silent; return how often since then."""
    wanted = size * (size + 1) / 2
    number, end = 0, None
    more = torch.ones(1)
    while bool(more):
        if end is None and Path(silence).exists():
            end = time.monotonic() + SUMS_S
        begun = time.monotonic()
        total = torch.full((4096,), float(rank + 1))
        dist.all_reduce(total)
        assert bool((total == wanted).all())
        number += end is not None
        Path(f"{silence}.{rank}").touch()
        more = torch.full((1,), float(rank == 0 and (end is None or begun < end)))
        dist.all_reduce(more)
    return number


def test_ranks_that_get_results_need_no_answers_to_arp(tmp_path: Path) -> None:
    silence = tmp_path / "silence"
    with network(hosts=2) as made:
        for host in made.hosts:
            for name, value in SOON.items():
                done = host.run("sysctl", "-w", f"net.ipv4.neigh.eth0.{name}={value}")
                assert done.returncode == 0, done.stderr

        said: list[Any] = []

        def fall_silent() -> None:
            while not all(tmp_path.joinpath(f"silence.{rank}").exists() for rank in range(2)):
                time.sleep(0.1)
            # It neither answers requests, nor makes any, as a board; everything else goes on.
            for host in made.hosts:
                link = host.run("ip", "-oneline", "link", "show", "eth0").stdout
                mac = link.split("link/ether ")[1].split()[0]
                entry = ("replace", host.address, "lladdr", mac, "nud", "permanent", "dev", "eth0")
                said.append(made.aggregator.run("ip", "neigh", *entry))
            said.append(made.aggregator.run("sysctl", "-w", "net.ipv4.conf.all.arp_ignore=8"))
            silence.touch()

        server, line = serving.start("--port", "0", place=made.aggregator)
        thread = threading.Thread(target=fall_silent, daemon=True)
        thread.start()
        try:
            outcomes = run_ranks(
                sum_for_a_while,
                2,
                str(silence),
                hosts=made.hosts,
                environment={"AFFLUX_AGGREGATOR": line.split()[-1]},
            )
            found = values(outcomes)
            assert [each.returncode for each in said] == [0, 0, 0]
            assert min(found) > 10
        finally:
            server.terminate()
            assert serving.finish(server) == 0
