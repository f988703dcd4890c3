"""Advice: what could be changed on this machine, and why, each with the command that does it."""

from typing import Any

from afflux_hdl.contract import wire

__all__ = ["advice"]

_LARGE_MTU = 9000


def advice(report: dict[str, Any]) -> list[str]:
    """Return sentences about a report of `info.command.collect`; none if all is well."""
    return [*_buffers(report), *_frames(report), *_processors(report), *_rest(report)]


def _buffers(report: dict[str, Any]) -> list[str]:
    buffers = report["socket_buffers"]
    if buffers["granted"] >= buffers["wanted"]:
        return []
    names = [
        f"net.core.{name}={buffers['wanted']}"
        for name, limit in (("rmem_max", buffers["receive_max"]), ("wmem_max", buffers["send_max"]))
        if limit is None or limit < buffers["wanted"]
    ]
    return [
        f"UDP sockets get {_mib(buffers['granted'])} of the {_mib(buffers['wanted'])} that an "
        f"aggregator asks for, so fewer packets may be in flight: sudo sysctl -w {' '.join(names)}"
    ]


def _frames(report: dict[str, Any]) -> list[str]:
    small = [
        each["name"]
        for each in report["interfaces"]
        if each["up"] and not each["loopback"] and 0 < each["lanes"] < wire.LANES_MAX
        and each["address"]
    ]  # fmt: skip
    return [
        f"{name}: an MTU of {_LARGE_MTU} makes room for {wire.LANES_MAX} blocks in a packet, if "
        f"all switches on the way carry it: sudo ip link set dev {name} mtu {_LARGE_MTU}"
        for name in small
    ]


def _processors(report: dict[str, Any]) -> list[str]:
    cores = report["cores"]
    if cores["quota"] is not None and cores["quota"] < cores["affinity"]:
        return [
            f"the control group may use {cores['quota']:g} processors at once, but "
            f"{cores['affinity']} are visible: start no more than that many ranks, or raise its "
            "quota"
        ]
    return []


def _rest(report: dict[str, Any]) -> list[str]:
    found = []
    found += [
        f"{each['url']} does not answer: {each['error']}"
        for each in report["aggregators"]
        if "error" in each
    ]
    return found


def _mib(size: int) -> str:
    return f"{size / 2**20:g} MiB" if size >= 1 << 20 else f"{size / 1024:.0f} KiB"
