"""Intel MPI over TCP on the hosts of a network: its launcher enters their namespaces.

The launcher runs on the first host and starts its proxies on the others with what it takes for ssh:
a script that enters the namespaces of the host that is named. So MPI knows of as many hosts as
there are, and its messages go through their interfaces.
"""

import importlib
import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.network.host import Host

__all__ = ["launcher", "missing", "place_from_mpi", "variables"]

_SCRIPT = "/dev/shm/enter"


def missing() -> str:
    """Return why MPI cannot take part; empty if it can."""
    if importlib.util.find_spec("mpi4py") is None:
        return "the package mpi4py is not installed"
    return "" if _mpiexec() else "there is no mpiexec.hydra (package impi-rt)"


def _mpiexec() -> str:
    # Not mpirun: a script, which would end without its own child.
    beside = Path(sys.executable).with_name("mpiexec.hydra")
    return str(beside) if beside.exists() else shutil.which("mpiexec.hydra") or ""


def launcher(hosts: Sequence[Host], ranks_per_host: int) -> list[str]:
    """Return what starts a program as all ranks, those of a host following each other.

    Raises:
        OSError: The script could not be written.
    """
    # In the first host's own memory, which ends with the host.
    written = hosts[0].run("sh", "-c", f"cat > {_SCRIPT}; chmod 700 {_SCRIPT}", input=_text(hosts))
    if written.returncode != 0:
        raise OSError(f"cannot write {_SCRIPT}: {written.stderr.strip()}")
    found = [_mpiexec(), "-hosts", ",".join(host.name for host in hosts)]
    found += ["-n", str(len(hosts) * ranks_per_host), "-ppn", str(ranks_per_host)]
    return hosts[0].command(*found, "-bootstrap", "ssh", "-bootstrap-exec", _SCRIPT)


def _text(hosts: Sequence[Host]) -> str:
    """Return a shell script that is called as ssh is: options, host, command."""
    cases = [
        f'{host.name}) shift; exec {shlex.join(host.command("sh", "-c"))} "$*";;' for host in hosts
    ]
    lines = ["#!/bin/sh", "while [ $# -gt 0 ]; do", 'case "$1" in', *cases, "esac", "shift", "done"]
    return "\n".join([*lines, "echo no such host >&2", "exit 1", ""])


def variables(host: Host) -> dict[str, str]:
    """Return what MPI reads from the environment, for hosts whose interface has that name."""
    return {
        # It looks for its own programs there.
        "PATH": os.pathsep.join([str(Path(_mpiexec()).parent), os.environ.get("PATH", "")]),
        "I_MPI_FABRICS": "shm:ofi",
        "I_MPI_OFI_PROVIDER": "tcp",
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": host.interface,
        # The other contenders are where the scheduler puts them, too.
        "I_MPI_PIN": "0",
    }


def place_from_mpi() -> None:
    """Set RANK and so on from what MPI knows of this process, as torchrun would."""
    MPI = importlib.import_module("mpi4py.MPI")
    world = MPI.COMM_WORLD
    os.environ |= {"RANK": str(world.Get_rank()), "WORLD_SIZE": str(world.Get_size())}
