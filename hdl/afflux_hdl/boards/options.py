"""A board's settings from the command line and from a file.

Tested: `tests/hdl/test_boards_settings.py`.
"""

import argparse
import contextlib
import hashlib
import ipaddress
import tomllib
from pathlib import Path
from typing import Any

from afflux_hdl.boards.key_file import new_key, read_key
from afflux_hdl.contract.management import PORT, Settings
from afflux_hdl.contract.wire import PORT as ENGINE_PORT

__all__ = ["ADDRESS", "CONTROLLER", "add_options", "settings_of"]

ADDRESS, CONTROLLER = "10.77.0.9", "10.77.0.1"
"""Unless others are given: those of the examples in `docs/hardware.md`."""

DHCP = "dhcp"

NAMES = ("mac", "address", "controller", "port", "engine_port", "name", "key_file")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of settings to a parser, and those of what tells a build."""
    build = parser.add_argument_group("what tells the build, for its registers")
    build.add_argument("--build-time", type=int, default=0, help="seconds since 1970")
    build.add_argument(
        "--build-commit", type=int, default=0, help="first 32 bits of the sources' commit"
    )
    group = parser.add_argument_group("settings of the board")
    group.add_argument(
        "--settings", type=Path, metavar="FILE.toml", help="has any of these, as in name = value"
    )
    group.add_argument("--mac", help="MAC address (default: 02 and five octets of the key's hash)")
    group.add_argument("--address", help=f'IPv4 address, or "dhcp" (default: {ADDRESS})')
    group.add_argument(
        "--controller", help=f"IPv4 address of the controlling host (default: {CONTROLLER})"
    )
    group.add_argument("--port", type=int, help=f"UDP port of the management (default: {PORT})")
    group.add_argument(
        "--engine-port", type=int, help=f"UDP port of the engine (default: {ENGINE_PORT})"
    )
    group.add_argument("--name", help="up to 16 characters (default: the board's name)")
    group.add_argument(
        "--key-file",
        type=Path,
        help="32 hexadecimal digits or 16 bytes, mode 600 (default: BOARD.key beside the"
        " bitstream, made at random if there is none)",
    )


def settings_of(options: argparse.Namespace, board: str, folder: Path) -> tuple[Settings, Path]:
    """Return the settings, and the file with their key.

    The command line counts more than the file. If no key file is named, `board`.key in `folder` is
    taken, or made.

    Raises:
        ValueError: If an option, or something in the file, cannot be; it is named.
    """
    given: dict[str, Any] = _read(options.settings) if options.settings else {}
    for name in NAMES:
        value = getattr(options, name)
        if value is not None:
            given[name] = value
    if "key_file" in given:
        key_file = Path(given["key_file"])
        key = read_key(key_file)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        key_file = folder / f"{board}.key"
        # Two that begin at once must not have a key each.
        with contextlib.suppress(FileExistsError):
            new_key(key_file)
        key = read_key(key_file)
    address = given.get("address", ADDRESS)
    for name in ("address", "controller"):
        _refuse_loopback(name, given.get(name, ""))
    settings = Settings(
        mac=_mac(given["mac"]) if "mac" in given else _mac_of(key),
        address=None if address == DHCP else address,
        controller=given.get("controller", CONTROLLER),
        key=key,
        port=given.get("port", PORT),
        engine_port=given.get("engine_port", ENGINE_PORT),
        name=given.get("name", board[:16]),
    )
    return settings, key_file


def _read(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read the settings {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"the settings {path} are not TOML: {error}") from None
    kinds = {"port": int, "engine_port": int}
    for name, value in found.items():
        if name == "key":
            raise ValueError(f"{path} must not have a key in it: name a key_file of mode 600")
        if name not in NAMES:
            raise ValueError(f"{path} has {name!r}; settings are {', '.join(NAMES)}")
        kind = kinds.get(name, str)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"{name} in {path} must be {kind.__name__}, not {value!r}")
    return found


def _refuse_loopback(name: str, text: str) -> None:
    # Simulated boards have such addresses; a real one would never hear anybody.
    with contextlib.suppress(ipaddress.AddressValueError):
        if ipaddress.IPv4Address(text).is_loopback:
            raise ValueError(f"{name} {text} is a host's own: nothing in a network has it")


def _mac(text: str) -> int:
    octets = text.replace("-", ":").split(":")
    try:
        values = [int(octet, 16) for octet in octets]
    except ValueError:
        values = []
    if len(values) != 6 or not all(0 <= value <= 0xFF for value in values):
        raise ValueError(f"mac must be a MAC address such as 02:00:00:00:00:09, not {text!r}")
    return int.from_bytes(bytes(values), "big")


def _mac_of(key: bytes) -> int:
    """Return a locally administered address: another one for each key, and it does not show it."""
    digest = hashlib.sha256(b"MAC address of an Afflux board\0" + key).digest()
    return int.from_bytes(bytes([0x02]) + digest[:5], "big")
