"""The resources that this process may use: processor cores, memory, socket buffers."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from afflux_drivers.sockets import enlarge

__all__ = [
    "WANTED_BUFFER_BYTES",
    "Cores",
    "Memory",
    "SocketBuffers",
    "read_cores",
    "read_memory",
    "read_socket_buffers",
]

WANTED_BUFFER_BYTES = 16 << 20
"""The socket buffer that an aggregator asks for; a worker asks for half of it."""

_NO_LIMIT = 1 << 60
"""In version 1, the kernel writes "no limit" as the largest multiple of a page."""


@dataclass(frozen=True)
class Cores:
    """Numbers of processors.

    Attributes:
        machine: All that the machine has.
        affinity: How many this process may run on.
        quota: How many its control group may use at once, on average; None: no limit.
    """

    machine: int
    affinity: int
    quota: float | None

    @property
    def usable(self) -> float:
        """The number of processors that ranks can keep busy."""
        return min(self.affinity, self.quota) if self.quota else self.affinity


@dataclass(frozen=True)
class Memory:
    """Memory, in bytes.

    Attributes:
        machine: All of the machine's.
        available: The kernel's estimate of bytes that could be had without swapping.
        limit: That of the control group; None: no limit.
        shm: Size of /dev/shm, which Afflux does not use; None if it does not exist.
    """

    machine: int
    available: int
    limit: int | None
    shm: int | None


@dataclass(frozen=True)
class SocketBuffers:
    """Sizes of a UDP socket's buffers, in bytes.

    Attributes:
        receive_max, send_max: net.core.rmem_max and wmem_max, None if they cannot be read.
        wanted: The size that an aggregator requests.
        granted: The size that this process got when it asked for `wanted`: half of the kernel's
            charge, which counts its own structures too. A privileged process may get more.
    """

    receive_max: int | None
    send_max: int | None
    wanted: int
    granted: int


def read_cores(root: Path = Path("/")) -> Cores:
    """Return the processors of the machine, of this process, of its control group."""
    return Cores(os.cpu_count() or 1, len(os.sched_getaffinity(0)), _quota(root))


def read_memory(root: Path = Path("/")) -> Memory:
    """Return the memory of the machine, of the control group, and of /dev/shm."""
    fields = {}
    for line in _lines(root / "proc/meminfo"):
        name, _, rest = line.partition(":")
        fields[name] = int(rest.split()[0]) * 1024
    limits = [
        int(text)
        for folder, file in (("", "memory.max"), ("memory", "memory.limit_in_bytes"))
        for text in _of_control_groups(root, folder, file)
        if text.isdecimal() and int(text) < _NO_LIMIT
    ]
    try:
        shm = os.statvfs(root / "dev/shm")
        shm_bytes: int | None = shm.f_frsize * shm.f_blocks
    except OSError:
        shm_bytes = None
    return Memory(
        fields.get("MemTotal", 0),
        fields.get("MemAvailable", 0),
        min(limits, default=None),
        shm_bytes,
    )


def read_socket_buffers(root: Path = Path("/")) -> SocketBuffers:
    """Return the limits, and what a socket of this process really gets."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        granted = enlarge(udp, WANTED_BUFFER_BYTES) // 2
    limits = []
    for name in ("rmem_max", "wmem_max"):
        text = "".join(_lines(root / "proc/sys/net/core" / name)).strip()
        limits.append(int(text) if text.isdecimal() else None)
    return SocketBuffers(limits[0], limits[1], wanted=WANTED_BUFFER_BYTES, granted=granted)


def _quota(root: Path) -> float | None:
    quotas = []
    for text in _of_control_groups(root, "", "cpu.max"):
        most, _, period = text.partition(" ")
        if most.isdecimal() and period.isdecimal():
            quotas.append(int(most) / int(period))
    for most, period in zip(
        _of_control_groups(root, "cpu", "cpu.cfs_quota_us"),
        _of_control_groups(root, "cpu", "cpu.cfs_period_us"),
        strict=False,
    ):
        # Minus one means that there is no quota.
        if most.isdecimal() and period.isdecimal():
            quotas.append(int(most) / int(period))
    return min(quotas, default=None)


def _of_control_groups(root: Path, controller: str, file: str) -> list[str]:
    """Return what `file` contains in this process's control group and in all above it.

    Args:
        root: Root of the file system.
        controller: Empty for version 2, of which there is one hierarchy.
        file: Name in the group's folder.
    """
    base = root / "sys/fs/cgroup" / controller
    own = ""
    for line in _lines(root / "proc/self/cgroup"):
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            own = path.strip("/")
    folders = [base / own, *(base / own).parents] if own else [base]
    found = []
    for folder in folders:
        text = "".join(_lines(folder / file)).strip()
        if text:
            found.append(text)
        if folder == base:
            break
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
