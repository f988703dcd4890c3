"""The command `afflux info`: collects the report and prints it."""

import argparse
import json
import os
import sys
from dataclasses import asdict
from importlib import metadata
from typing import Any

from afflux.commands.bench.processor import processor_name
from afflux.commands.info.advice import advice
from afflux.commands.info.aggregators import ask
from afflux.commands.info.carrier import read_carrier
from afflux.commands.info.interfaces import read_interfaces
from afflux.commands.info.limits import read_cores, read_memory, read_socket_buffers
from afflux.commands.info.sharing import why_not_shared
from afflux.commands.info.text import render
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.settings.variables import Settings
from afflux.version import version
from afflux_drivers import _native
from afflux_drivers.errors import AffluxError
from afflux_drivers.option_types import checked, seconds

__all__ = ["add_arguments", "collect", "run"]

_FEATURES = (
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_fp16",
    "asimd",
    "sve",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `afflux info`."""
    parser.add_argument(
        "urls",
        nargs="*",
        type=checked(AggregatorUrl.parse_running),
        metavar="URL",
        help="aggregators to ask: udp://host[:port]",
    )
    parser.add_argument(
        "--timeout",
        type=seconds(3600),
        default=2.0,
        metavar="SECONDS",
        help="for each of them (%(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument(
        "--forecast", action="store_true",
        help="measure for about a second, over the loopback interface alone, how many cores a port "
        "of 10, 25 or 100 Gbit/s would take here",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Return the exit status: 1 if an aggregator that was named does not answer."""
    try:
        urls = [each for url in arguments.urls for each in url.each]
        report = collect(urls, arguments.timeout)
        if arguments.forecast:
            # Only now, as it needs numpy.
            from afflux.commands.info.cores import measured_forecast

            report["forecast"] = measured_forecast()
    except AffluxError as error:
        print(f"afflux info: {error}", file=sys.stderr)
        return 1
    print(json.dumps(report, indent=1) if arguments.json else render(report))
    return 1 if any("error" in each for each in report["aggregators"]) else 0


def collect(urls: list[str], timeout_s: float) -> dict[str, Any]:
    """Collect all that is shown, as JSON values. Sizes are in bytes.

    Args:
        urls: Aggregators to ask, beside that of AFFLUX_AGGREGATOR if it names a running one.
        timeout_s: Timeout of each aggregator's answer.

    Raises:
        SettingsError: A variable has a value that it cannot have.
    """
    settings = Settings.from_environment()
    aggregator = settings.aggregator
    named = [*aggregator.each, *urls]
    reason = why_not_shared(aggregator)
    report: dict[str, Any] = {
        "versions": {
            "afflux": version(),
            "torch": metadata.version("torch"),
            "python": sys.version.split()[0],
            "kernel": os.uname().release,
        },
        "aggregator": str(aggregator),
        "shared_memory": {"used_by_ranks_here": not reason, "reason": reason},
        "carrier": read_carrier(settings),
        "processor": {"name": processor_name(), "features": _features()},
        "sums": _sums(),
        "cores": {**asdict(cores := read_cores()), "usable": cores.usable},
        "memory": asdict(read_memory()),
        "socket_buffers": asdict(read_socket_buffers()),
        "interfaces": [asdict(each) for each in read_interfaces()],
        "aggregators": [ask(url, timeout_s) for url in dict.fromkeys(named)],
    }
    report["advice"] = advice(report)
    return report


def _sums() -> dict[str, Any]:
    """Return the instruction sets that sums can have: the one in use, and all that could be."""
    return {
        "instruction_set": _native.instruction_set(),
        "instruction_sets": _native.instruction_sets(),
    }


def _features() -> list[str]:
    """Return the processor's features that sums may use."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                name, _, rest = line.partition(":")
                if name.strip() in ("flags", "Features"):
                    present = set(rest.split())
                    return [each for each in _FEATURES if each in present]
    except OSError:
        pass
    return []
