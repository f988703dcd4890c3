"""`afflux device list`: the cards of this host, and boards in the network that are asked."""

import argparse
import json
import secrets
from typing import Any

from afflux.commands.device.text import columns
from afflux_drivers.device.description import describe, time_text
from afflux_drivers.device.device import open_device
from afflux_drivers.device.discovery import find_cards
from afflux_drivers.device.key import KEY_BYTES
from afflux_drivers.device.location import DeviceUrl
from afflux_drivers.device.udp import WrongKey
from afflux_drivers.errors import AffluxError

__all__ = ["run"]


def run(arguments: argparse.Namespace, key: bytes | None) -> int:
    """Print them; return 1 if one that was named does not answer."""
    named = [DeviceUrl.parse(f"udp://{each}") for each in arguments.addresses]
    found = [
        {
            "url": str(each.url),
            "what": each.shell.name,
            "build_time": each.build_time,
            "reason": each.reason,
        }
        for each in find_cards(arguments.sysfs, arguments.locks)
    ]
    asked = [_ask(url, key, arguments) for url in named]
    if arguments.json:
        print(json.dumps(found + asked, indent=1))
    elif found or asked:
        print(columns([("URL", "WHAT", "BUILT"), *map(_row, found + asked)]))
    else:
        print("no card of this host has a shell that is known here")
    return 1 if any(each["reason"] for each in asked) else 0


def _ask(url: DeviceUrl, key: bytes | None, arguments: argparse.Namespace) -> dict[str, Any]:
    answer = {"url": str(url), "what": "appliance", "build_time": None, "reason": ""}
    try:
        with open_device(
            url,
            # Anybody at the controller's address is answered a HELLO; only the key shows by whom.
            key=secrets.token_bytes(KEY_BYTES) if key is None else key,
            exclusive=False,
            timeout_s=arguments.timeout,
            locks=arguments.locks,
        ) as device:
            found = describe(device)
            what = f"appliance {found['board']['name']}".strip()
            return answer | {"what": what, "build_time": found["build_time"]}
    except WrongKey as error:
        unknown = "answers; without its key nothing more is known (--key-file)"
        return answer | {"reason": unknown if key is None else str(error)}
    except (AffluxError, ValueError) as error:
        return answer | {"reason": str(error)}


def _row(each: dict[str, Any]) -> tuple[str, str, str]:
    built = each["reason"] or time_text(each["build_time"])
    return each["url"], each["what"], built
