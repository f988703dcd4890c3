"""A network on this machine: hosts in network namespaces, at the ports of one switch.

    with Network(hosts=4, gbit=1.0) as network:
        network.hosts[2].run("ip", "address")

The namespaces have no names and no processes: descriptors of this process hold them. When it ends,
in whichever way, and with it what it has started there, the kernel removes them and all that is in
them. To look into one from outside: `nsenter --net=/proc/PID/fd/NUMBER ip address`.

Each port has a rate and a buffer in both directions: a token bucket (`tbf`) where the host sends,
and one where the switch sends to it. The rate counts the bytes of frames from the Ethernet header
on. Packets that the kernel would cut, or has put together, pass as one, as they pass a network card
that does so: this costs as little CPU as there.
"""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.network.faults import Fault, bytecode
from benchmarks.network.host import Host, joined, tool

__all__ = ["Network", "NotPermitted", "boards_missing", "missing"]

_BURST = 70_000
"""Bytes that a port passes at once: a packet of 64 KB that is cut later, with all its headers."""

_HOST_QUEUE = 4 << 20
"""Bytes that wait at a host's interface. Sockets' send buffers limit them before this does."""

_TIMEOUT_S = 20.0

_MAKE_HOST = """
set -e
ip=$1 name=$2 hosts=$3
if [ -n "$name" ]; then
    echo "$name" > /proc/sys/kernel/hostname
    mount -t tmpfs afflux /dev/shm
    if [ -e /etc/hosts ]; then
        printf '%s' "$hosts" > /dev/shm/hosts
        mount --bind /dev/shm/hosts /etc/hosts
        umount /dev/shm
        mount -t tmpfs afflux /dev/shm
    fi
fi
"$ip" link set lo up
echo made
read -r _ || true
"""
"""A host of new namespaces: its name, files of its own, and its loopback interface.

The file below /etc/hosts stays in a file system that nothing else shows."""


_MAKE_TAP = "tuntap add dev eth0 mode tap"
"""Makes the interface behind a board's host port; it takes /dev/net/tun."""


class NotPermitted(RuntimeError):
    """Such a network cannot be made here; the message gives the reason."""


@dataclass
class _Namespaces:
    """Descriptors that hold the namespaces of a host, or of the switch, by kind."""

    descriptors: dict[str, int]

    def paths(self) -> dict[str, str]:
        return {kind: f"/proc/{os.getpid()}/fd/{fd}" for kind, fd in self.descriptors.items()}

    def run(self, arguments: Sequence[str], lines: str | None = None) -> str:
        """Run a program in the network namespace, with its standard input; return its output.

        Raises:
            NotPermitted: It failed.
        """
        way = f"--net={self.paths()['net']}"
        done = subprocess.run(
            [tool("nsenter"), way, "--", tool(arguments[0]), *arguments[1:]],
            check=False,
            input=lines,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
        if done.returncode != 0:
            said = " ".join((done.stderr or done.stdout).split())
            raise NotPermitted(f"{' '.join(arguments)}: {said}")
        return done.stdout

    def wait_for_link(self, device: str) -> None:
        """Wait until the kernel has noticed that the interface's cable carries.

        It notices that some time after the cable is plugged in at its other end, and drops what is
        sent before.

        Raises:
            NotPermitted: It has not noticed for long.
        """
        until = time.monotonic() + _TIMEOUT_S
        while True:
            [found] = json.loads(self.run(["ip", "-json", "link", "show", "dev", device]))
            if found["operstate"] == "UP":
                return
            if time.monotonic() > until:
                raise NotPermitted(f"{device} is {found['operstate']}, not UP")
            time.sleep(0.01)


class Network:
    """Hosts at the ports of a switch. Use it in a `with` statement, or call `close`.

    Attributes:
        hosts: The hosts with ranks: h0, h1 and so on.
        aggregators: Hosts with ports of another rate: a0, a1 and so on.
        boards: Hosts b0, b1 and so on without a cable: the first interface of each is a tap device,
            at whose other end is the host port of a board that is simulated there (`plug`).
    """

    def __init__(
        self,
        hosts: int = 4,
        *,
        gbit: float | None = 1.0,
        aggregators: int = 1,
        aggregator_gbit: float | None = 10.0,
        mtu: int = 1500,
        loss: float = 0.0,
        links: int = 1,
        buffer_bytes: int = 1 << 20,
        burst_bytes: int = _BURST,
        offloads: bool = True,
        boards: int = 0,
        ipv4: bool = True,
    ) -> None:
        """Make the network.

        Args:
            hosts: How many there are.
            gbit: Rate of each of their ports, both ways, in Gbit/s; None: no limit.
            aggregators: How many of these there are.
            aggregator_gbit: Rate of each of their ports.
            mtu: Most bytes of a frame behind the Ethernet header.
            loss: Share of IP packets that are lost on the way from the switch to a host. It turns
                the offloads off, as otherwise many packets would be lost together.
            links: Interfaces of each host, each at a switch of its own with a subnet of its own.
            buffer_bytes: The limit of the queue at a port of the switch; small switches have 0.5 to
                2 MB.
            burst_bytes: The bytes that a port passes at once. Where it is less than a packet of 64
                KB, these are cut before they leave the host, and come to the switch one by one.
            offloads: Whether packets pass the interfaces uncut, as described above; if not, the
                switch cuts them as they leave it, and hosts receive each by itself.
            boards: How many hosts with a board there are; their ports have the aggregators' rate.
            ipv4: Whether there are addresses of IPv4, beside those of IPv6. If not, the names and
                `Host.address` stand for those of IPv6.

        Raises:
            NotPermitted: It cannot be made here.
            ValueError: A rate is not a positive number.
        """
        if any(rate is not None and rate <= 0 for rate in (gbit, aggregator_gbit)):
            raise ValueError(f"rates are {gbit} and {aggregator_gbit}: they must be positive")
        self.hosts: list[Host] = []
        self.aggregators: list[Host] = []
        self.boards: list[Host] = []
        self.mtu, self.gbit, self.aggregator_gbit = mtu, gbit, aggregator_gbit
        self.links, self.buffer_bytes, self.burst_bytes = links, buffer_bytes, burst_bytes
        self.offloads = offloads and not loss
        self.ipv4 = ipv4
        self._held = contextlib.ExitStack()
        self._ports: dict[str, int] = {}
        self._hosts: dict[str, _Namespaces] = {}
        names = [f"h{n}" for n in range(hosts)] + [f"a{n}" for n in range(aggregators)]
        of_boards = [f"b{n}" for n in range(boards)]
        try:
            self._switch = self._made("", "")
            self._make_switches()
            everyone = names + of_boards
            for number, name in enumerate(names, start=1):
                rate = gbit if number <= hosts else aggregator_gbit
                host = self._make(name, number, everyone, rate, loss)
                (self.hosts if number <= hosts else self.aggregators).append(host)
            for number, name in enumerate(of_boards, start=len(names) + 1):
                self.boards.append(self._make_board(name, number, everyone))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Network":
        """Return the network."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove it."""
        self.close()

    def close(self) -> None:
        """Let go of the namespaces: the kernel removes each when no process is in it any more."""
        self._held.close()

    @property
    def aggregator(self) -> Host:
        """The first host with a port of the aggregators' rate."""
        return self.aggregators[0]

    def impair(self, host: Host, fault: Fault | None, *, incoming: bool = False) -> None:
        """Let the host's port of the switch drop packets, instead of those that it drops now.

        It sees packets before they are cut: with a share, what is lost may be many in one.

        Args:
            host: A host of this network.
            fault: Which packets; None: none.
            incoming: Those to the host; otherwise those from it.
        """
        way = "egress" if incoming else "ingress"
        lines = []
        for link in range(self.links):
            port = self._port(host, link)
            lines.append(f"filter delete dev {port} {way}")
            if fault is not None:
                code = bytecode(fault)
                lines.append(f"filter add dev {port} {way} bpf da bytecode '{code}'")
        self._switch.run(["tc", "-batch", "-"], joined(lines))

    def narrow(self, mtu: int) -> None:
        """Let the switches drop packets of more than so many bytes, without a word to anybody.

        Hosts go on to send packets as large as their interfaces' MTU, each by itself.
        """
        # Not by the port's MTU: the host's kernel is told of what is dropped so, tries for eight
        # seconds, and then ends the connection.
        for host in (*self.hosts, *self.aggregators):
            for link in range(self.links):
                ip = ["ip", "link", "set", "dev"]
                self._hosts[host.name].run([*ip, f"eth{link}", "gso_max_segs", "1"])
            self.impair(host, Fault(longer_than=mtu))

    def unplug(self, host: Host, *, link: int = 0, plugged: bool = False) -> None:
        """Pull the host's cable out of the switch, or plug it in again."""
        state = "up" if plugged else "down"
        port = self._port(host, link)
        self._switch.run(["ip", "link", "set", "dev", port, state])
        if plugged:
            self._switch.wait_for_link(port)
            self._hosts[host.name].wait_for_link(f"eth{link}")

    def plug(self, board: Host, device: str) -> None:
        """Plug a cable into the switch whose end is an interface of a board's host.

        Args:
            board: One of `boards`.
            device: The interface. It becomes the switch's port; the host with its other end keeps
            it.
        """
        port = self._port(board, 0)
        self._hosts[board.name].run(
            ["ip", "link", "set", "dev", device, "netns", self._switch.paths()["net"], "name", port]
        )
        lines = [f"link set dev {port} mtu {self.mtu} master switch0", f"link set dev {port} up"]
        self._switch.run(["ip", "-batch", "-"], joined(lines))
        queues = [f"qdisc add dev {port} clsact"]
        if self.aggregator_gbit is not None:
            bucket = f"tbf rate {round(self.aggregator_gbit * 1e9)}bit burst {self.burst_bytes}"
            queues.append(f"qdisc add dev {port} root {bucket} limit {self.buffer_bytes}")
        self._switch.run(["tc", "-batch", "-"], joined(queues))

    def _port(self, host: Host, link: int) -> str:
        return f"p{self._ports[host.name]}.{link}"

    def _made(self, name: str, hosts_file: str) -> _Namespaces:
        kinds = {"net": "--net"} | ({"uts": "--uts", "mnt": "--mount"} if name else {})
        try:
            command = [tool("unshare"), *kinds.values(), "--"]
            command += ["sh", "-c", _MAKE_HOST, "sh", tool("ip"), name, hosts_file]
        except FileNotFoundError as error:
            raise NotPermitted(str(error)) from None
        # Its standard input ends with this process, so that it does not stay if that is killed now.
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as maker:
            assert maker.stdin is not None and maker.stdout is not None and maker.stderr is not None
            if maker.stdout.readline() != "made\n":
                said = " ".join(maker.stderr.read().split())
                raise NotPermitted(f"no namespaces can be made: {said}")
            descriptors = {}
            for kind in kinds:
                path = f"/proc/{maker.pid}/ns/{kind}"
                descriptors[kind] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                self._held.callback(os.close, descriptors[kind])
            maker.stdin.close()
            maker.wait(_TIMEOUT_S)
        return _Namespaces(descriptors)

    def _make_switches(self) -> None:
        lines = []
        for link in range(self.links):
            # Multicast goes to all ports, as nobody here asks who wants it.
            lines.append(f"link add dev switch{link} mtu {self.mtu} type bridge mcast_snooping 0")
            lines.append(f"link set dev switch{link} up")
        self._switch.run(["ip", "-batch", "-"], joined(lines))

    def _make_board(self, name: str, number: int, names: Sequence[str]) -> Host:
        made = self._hosts[name] = self._made(name, _hosts_file(names))
        self._ports[name] = number
        address, address6 = f"10.77.0.{number}", f"fd77::{number:x}"
        lines = [
            _MAKE_TAP,
            f"link set dev eth0 address 02:af:f1:00:00:{number:02x} mtu {self.mtu}",
            f"address add {address}/24 dev eth0",
            f"address add {address6}/64 dev eth0 nodad",
            "link set dev eth0 up",
        ]
        made.run(["ip", "-batch", "-"], joined(lines))
        return Host(name, address, address6, {"eth0": address}, made.paths())

    def _make(
        self, name: str, number: int, names: Sequence[str], rate: float | None, loss: float
    ) -> Host:
        made = self._hosts[name] = self._made(name, _hosts_file(names, self.ipv4))
        self._ports[name] = number
        addresses = {f"eth{link}": f"10.77.{link}.{number}" for link in range(self.links)}
        paths = made.paths()
        six = {
            f"eth{link}": f"fd77:{link:x}::{number:x}" if link else f"fd77::{number:x}"
            for link in range(self.links)
        }
        four, addresses = addresses, addresses if self.ipv4 else six
        host = Host(name, addresses["eth0"], six["eth0"], addresses, paths)
        inside, outside, queues, ports = [], [], [], []
        for link, (interface, address) in enumerate(four.items()):
            port = self._port(host, link)
            cut = "" if self.offloads else " gso_max_segs 1"
            outside += [
                f"link add dev {port} mtu {self.mtu} type veth"
                f" peer name {interface} mtu {self.mtu} netns {paths['net']}",
                f"link set dev {port} master switch{link}{cut} up",
            ]
            inside += [f"address add {address}/24 dev {interface}"] if self.ipv4 else []
            inside += [
                f"address add {six[interface]}/64 dev {interface} nodad",
                f"link set dev {interface} up",
            ]
            ports.append(f"qdisc add dev {port} clsact")
            if loss:
                # Here packets are single; at the port they may still be many in one.
                queues.append(f"qdisc add dev {interface} clsact")
                code = bytecode(Fault(loss))
                queues.append(f"filter add dev {interface} ingress bpf da bytecode '{code}'")
            if rate is not None:
                bucket = f"tbf rate {round(rate * 1e9)}bit burst {self.burst_bytes}"
                queues.append(f"qdisc add dev {interface} root {bucket} limit {_HOST_QUEUE}")
                ports.append(f"qdisc add dev {port} root {bucket} limit {self.buffer_bytes}")
        self._switch.run(["ip", "-batch", "-"], joined(outside))
        made.run(["ip", "-batch", "-"], joined(inside))
        made.run(["tc", "-batch", "-"], joined(queues))
        self._switch.run(["tc", "-batch", "-"], joined(ports))
        for link, interface in enumerate(addresses):
            self._switch.wait_for_link(self._port(host, link))
            made.wait_for_link(interface)
        return host


def _hosts_file(names: Sequence[str], ipv4: bool = True) -> str:
    """Return the text of /etc/hosts for a network of hosts with these names."""
    entries = ["127.0.0.1 localhost", "::1 localhost"]
    form = "10.77.0.{:d} {}" if ipv4 else "fd77::{:x} {}"
    entries += [form.format(number, each) for number, each in enumerate(names, start=1)]
    return joined(entries)


_missing: list[str] = []


_boards_missing: list[str] = []


def missing() -> str:
    """Return why such networks cannot be made here, with loss and all; empty if they can."""
    if not _missing:
        _missing.append(_tried())
    return _missing[0]


def boards_missing() -> str:
    """Return why there can be no boards in such networks here; empty if there can."""
    if not _boards_missing:
        _boards_missing.append(missing() or _tried(boards=1))
    return _boards_missing[0]


def _tried(boards: int = 0) -> str:
    try:
        with Network(hosts=1, aggregators=0, loss=0.5, boards=boards):
            return ""
    except (NotPermitted, OSError) as error:
        return f"no network can be made on this machine: {error}"
