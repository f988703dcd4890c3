"""Ranks in containers and under SLURM, with the namespaces that containers consist of."""

import json
import os
import re
import subprocess
import sys

from benchmarks.network.host import tool
from tests.support.checkout import ROOT
from tests.support.host.network import network

LIMIT_S = 90
FIRST_PORT, LAST_PORT = 50000, 50999
MASTER_PORT = 29500

SCRIPT = """
import json, os
from pathlib import Path
import torch, torch.distributed as dist
import afflux

def ports(kind):
    lines = Path(f"/proc/self/net/{kind}").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    # 0A: listening; UDP has no such state.
    wanted = [each[1] for each in fields if each[3] == "0A" or kind == "udp"]
    return [int(each.rpartition(":")[2], 16) for each in wanted]

def right(group, ranks):
    tensor = torch.arange(1_000_000) * float(dist.get_rank() + 1)
    dist.all_reduce(tensor, group=group)
    return torch.equal(tensor, torch.arange(1_000_000) * float(sum(ranks) + len(ranks)))

dist.init_process_group("afflux")
size = dist.get_world_size()
first = right(None, range(size))
# Of the first host alone, with no address given.
pair = dist.new_group([0, 1], backend="afflux", pg_options=afflux.Options(aggregator="auto"))
inside = dist.get_rank() in (0, 1)
found = afflux.statistics()
free = os.statvfs("/dev/shm")
said = {
    "right": first and (not inside or right(pair, [0, 1])),
    "topology": found["topology"],
    "of_pair": afflux.statistics(pair)["engine"] if inside else "",
    "pid": os.getpid(),
    "shm": free.f_blocks * free.f_frsize,
    "ports": sorted({*ports("udp"), *ports("tcp")}),
}
dist.barrier()
print(json.dumps(said), flush=True)
dist.destroy_process_group()
"""


def in_container(*command):
    """Return what runs a command with process numbers, file systems and /dev/shm of its own."""
    ways = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    small = 'mount -t tmpfs -o size=64k afflux /dev/shm && exec "$@"'
    return [tool("unshare"), *ways, "sh", "-c", small, "sh", *command]


def run(places, folder, command, variables):
    """Run a script at these hosts, each rank in a container; return what each has said."""
    script = folder / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    processes = []
    try:
        for rank, host in enumerate(places):
            processes.append(
                host.popen(
                    *in_container(*command, sys.executable, str(script)),
                    env=os.environ | {"OMP_NUM_THREADS": "1"} | variables(rank),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            )
        ends = [process.communicate(timeout=LIMIT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for (_, error), process in zip(ends, processes, strict=True):
        assert process.returncode == 0, error
    return [json.loads(out) for out, _ in ends]


def test_tasks_of_slurm_in_containers_on_two_hosts(tmp_path):
    """As the document says it, and with the range of ports that a firewall lets pass.

    Of each host's tasks each is in a container; they have the host's network namespace in common.
    """
    text = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    (shell,) = re.findall(r"<!-- srun: .* -->\n```sh\n(.*?)```", text, re.DOTALL)
    place = tmp_path / "place.sh"
    place.write_text(shell, encoding="utf-8")
    (setting,) = re.findall(r'sysctl -w net\.ipv4\.ip_local_port_range="(.*)"', text)
    assert setting == f"{FIRST_PORT} {LAST_PORT}"
    with network(hosts=2, aggregators=0, gbit=None) as made:
        for host in made.hosts:
            path = "/proc/sys/net/ipv4/ip_local_port_range"
            done = host.run("sh", "-c", f"echo {setting} > {path}")
            assert done.returncode == 0, done.stderr

        def variables(rank):
            return {
                "SLURM_PROCID": str(rank),
                "SLURM_NTASKS": "3",
                "SLURM_LOCALID": str(rank % 2),
                "SLURM_LAUNCH_NODE_IPADDR": made.hosts[0].address,
                "AFFLUX_AGGREGATOR": "streams://",
                "GLOO_SOCKET_IFNAME": "eth0",
            }

        places = [made.hosts[rank // 2] for rank in range(3)]
        said = run(places, tmp_path, ["sh", str(place)], variables)
    assert [each["of_pair"] for each in said] == ["shm", "shm", ""]
    for each in said:
        assert each["right"]
        # Two of one network namespace share memory; the hosts are two.
        assert each["topology"] == "streams by host"
        # Each was the first process of its container, whose /dev/shm holds nothing.
        assert each["pid"] <= 2
        assert each["shm"] == 64 << 10
        others = [port for port in each["ports"] if port != MASTER_PORT]
        assert others
        assert all(FIRST_PORT <= port <= LAST_PORT for port in others), others
