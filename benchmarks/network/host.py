"""A host of a network on this machine: namespaces of its own, which processes enter.

A host has its own interfaces, its own name, an /etc/hosts with the names of all hosts, and its own
/dev/shm. Processes, files and memory are those of the machine.
"""

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Host", "tool"]


def tool(name: str) -> str:
    """Return the path of a program that may be in a folder of root's.

    Raises:
        FileNotFoundError: There is none.
    """
    folders = [os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/bin", "/bin"]
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        raise FileNotFoundError(f"there is no program {name!r}")
    return found


def _set_namespace(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"cannot enter the namespace: {os.strerror(number)}", path)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Host:
    """Where a host is. It can be pickled, and used as long as its network's process lives.

    Attributes:
        name: Its host name, which all hosts of its network can resolve.
        address, address6: Its addresses at its first interface.
        addresses: Its addresses, by interface; of IPv4 if it has any.
        namespaces: Where its namespaces are: net, uts and mnt.
    """

    name: str
    address: str
    address6: str
    addresses: dict[str, str]
    namespaces: dict[str, str]

    @property
    def interface(self) -> str:
        """The name of its first interface."""
        return next(iter(self.addresses))

    def enter(self) -> None:
        """Move this process there for good. It must not have started any thread yet."""
        folder = os.getcwd()
        for kind in ("net", "uts", "mnt"):
            _set_namespace(self.namespaces[kind])
        os.chdir(folder)

    @contextlib.contextmanager
    def sockets_here(self) -> Iterator[None]:
        """Let this thread make sockets there. They stay there, whichever thread uses them."""
        own = "/proc/thread-self/ns/net"
        before = os.open(own, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _set_namespace(self.namespaces["net"])
            try:
                yield
            finally:
                _set_namespace(f"/proc/self/fd/{before}")
        finally:
            os.close(before)

    def command(self, *command: str) -> list[str]:
        """Return what runs a command there, in the same folder; it becomes that process.

        It is killed when the thread ends that starts it.
        """
        names = {"net": "net", "uts": "uts", "mnt": "mount"}
        ways = [f"--{names[kind]}={path}" for kind, path in self.namespaces.items()]
        ends = [tool("setpriv"), "--pdeathsig", "KILL", "--"]
        in_folder = [*ends, "sh", "-c", 'cd "$0" && exec "$@"', os.getcwd()]
        return [tool("nsenter"), *ways, "--", *in_folder, *command]

    def run(self, *command: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        """Run a command there to its end, with the options of `subprocess.run`."""
        options = {"capture_output": True, "text": True, "timeout": 60} | options
        return subprocess.run(self.command(*command), check=False, **options)

    def popen(self, *command: str, **options: Any) -> "subprocess.Popen[str]":
        """Start a command there, with the options of `subprocess.Popen`."""
        return subprocess.Popen(self.command(*command), **({"text": True} | options))


def joined(lines: Sequence[str]) -> str:
    """Return the text of a file with these lines."""
    return "".join(f"{line}\n" for line in lines)
