"""Formats the report as lines of text."""

from typing import Any

__all__ = ["render"]

_INDENT = " " * 16


def render(report: dict[str, Any]) -> str:
    """Show all of the report, advice last."""
    versions, cores, memory = report["versions"], report["cores"], report["memory"]
    buffers, sums, sharing = report["socket_buffers"], report["sums"], report["shared_memory"]
    lines = [
        _line(
            "afflux",
            f"{versions['afflux']}, torch {versions['torch']}, Python {versions['python']}, "
            f"Linux {versions['kernel']}",
        ),
        _line("aggregator", report["aggregator"]),
        _line(
            "ranks here",
            "would share memory"
            if sharing["used_by_ranks_here"]
            else f"would not share memory: {sharing['reason']}",
        ),
        _line("carrier", _carrier(report["carrier"])),
        _line("processor", report["processor"]["name"] or "unknown"),
        _line("", " ".join(report["processor"]["features"]) or "no vector instructions known"),
        _line("sums", f"{sums['instruction_set']} (of {', '.join(sums['instruction_sets'])})"),
        _line("cores", _cores(cores)),
        _line("memory", _memory(memory)),
        _line(
            "UDP buffers",
            f"{_size(buffers['granted'])} granted of {_size(buffers['wanted'])}; rmem_max "
            f"{_size(buffers['receive_max'])}, wmem_max {_size(buffers['send_max'])}",
        ),
    ]
    for number, each in enumerate(report["interfaces"]):
        lines += _interface("interfaces" if number == 0 else "", each)
    for number, each in enumerate(report["aggregators"]):
        lines += _aggregator("aggregators" if number == 0 else "", each)
    if "forecast" in report:
        lines += _forecast(report["forecast"])
    for number, sentence in enumerate(report["advice"]):
        lines.append(_line("advice" if number == 0 else "", sentence))
    return "\n".join(lines)


def _line(title: str, text: str) -> str:
    return f"{title:<{len(_INDENT)}}{text}".rstrip()


def _carrier(found: dict[str, Any]) -> str:
    devices = f"RDMA devices {', '.join(found['rdma_devices'])}" if found["rdma_devices"] else ""
    if not found["used"]:
        return f"{found['asked']}, which this host cannot use: {found['reason']}"
    chosen = found["asked"] if found["asked"] == found["used"] else f"auto: {found['used']}"
    if found["reason"]:
        return f"{chosen}, as {found['reason']}"
    if found["asked"] == "auto":
        chosen += " if all hosts can"
    return f"{chosen}; {devices}" if devices else chosen


def _cores(cores: dict[str, Any]) -> str:
    quota = "no quota" if cores["quota"] is None else f"quota {cores['quota']:g}"
    affinity = f"{cores['affinity']} of {cores['machine']} by affinity"
    return f"{cores['usable']:g} usable ({affinity}, {quota})"


def _memory(memory: dict[str, Any]) -> str:
    limit = "no limit" if memory["limit"] is None else f"limit {_size(memory['limit'])}"
    return (
        f"{_size(memory['available'])} available of {_size(memory['machine'])}, {limit}; /dev/shm "
        f"{_size(memory['shm'])}, not used"
    )


def _interface(title: str, each: dict[str, Any]) -> list[str]:
    speed = each["speed_mbit_per_s"]
    facts = [
        "up" if each["up"] else "down",
        f"MTU {each['mtu']} ({each['lanes']} block{'' if each['lanes'] == 1 else 's'} a packet)",
        *([each["address"]] if each["address"] else []),
        *([f"{speed} Mbit/s"] if speed else []),
        *([each["driver"]] if each["driver"] else []),
    ]
    lines = [_line(title, f"{each['name']}: {', '.join(facts)}")]
    if each["up"] and not each["loopback"]:
        for state, word in ((True, "on"), (False, "off")):
            names = [name for name, value in each["offloads"].items() if value is state]
            if names:
                lines.append(_line("", f"  {word}: {' '.join(names)}"))
        if not each["offloads"]:
            lines.append(_line("", "  offloads unknown"))
    return lines


def _aggregator(title: str, each: dict[str, Any]) -> list[str]:
    if "error" in each:
        return [_line(title, f"{each['url']}: {each['error']}")]
    return [
        _line(
            title,
            f"{each['url']}: {each['engine']}, answers in {each['answer_s'] * 1e3:.1f} ms",
        ),
        _line(
            "",
            f"  up to {each['workers']} workers, {each['lanes']} lanes, {each['jobs']} jobs, "
            f"{each['slots']} slots; {each['lanes_on_the_way']} blocks a packet from "
            f"{each['from_address']}",
        ),
    ]


def _forecast(found: dict[str, Any]) -> list[str]:
    lines = [
        _line("forecast", "cores that a port keeps busy, full both ways with dense tensors: from "),
        _line("", "the kernel's offloads all the way to none at all; a card's driver comes on top"),
        _line("", f"(measured over the loopback interface, in {found['seconds']:.1f} s)"),
        _line("", _ports("Gbit/s", [f"{rate:g}" for rate in found["rates_gbit"]])),
    ]
    streams = [f"{cores:.{_digits(cores)}f}" for cores in found["streams"]["cores"]]
    lines.append(_line("", _ports("ranks, streams", streams)))
    for each in found["cores"]:
        cells = [
            f"{best:.{_digits(best)}f} – {worst:.{_digits(worst)}f}"
            for best, worst in zip(each["offloads"], each["no_offloads"], strict=True)
        ]
        lines.append(_line("", _ports(f"{each['what']}, {each['packets']}", cells)))
    return lines


def _digits(cores: float) -> int:
    return 1 if cores < 9.95 else 0


def _ports(title: str, cells: list[str]) -> str:
    return f"  {title:<26}" + "".join(f"{cell:>14}" for cell in cells)


def _size(size: int | None) -> str:
    if size is None:
        return "unknown"
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"
