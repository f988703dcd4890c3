"""Whether a board is what was loaded: identity, release and build time, read back."""

import time
from collections.abc import Callable

from afflux_drivers.device.description import release_text, time_text
from afflux_drivers.device.device import Device
from afflux_drivers.device.errors import DeviceBusy, DeviceFailed
from afflux_drivers.flash.errors import FlashFailed
from afflux_drivers.flash.report import Report
from afflux_hdl.contract import registers

__all__ = ["check_identity"]

_PAUSE_S = 0.2


def check_identity(open_it: Callable[[], Device], report: Report | None, *, wait_s: float) -> str:
    """Return what a board says about itself after it was loaded.

    Args:
        open_it: Opens its registers, for reading.
        report: The expected content of its bitstream; None if that is not known.
        wait_s: Seconds until it must answer: an appliance starts, and may ask for its address.

    Raises:
        FlashFailed: It does not answer in time, or is another build.
    """
    deadline = time.monotonic() + wait_s
    while True:
        try:
            with open_it() as device:
                found = device.read(registers.address_of("build_time"))
                release = device.read(registers.address_of("build_version"))
                text = f"{device.url}: release {release_text(release)}, built {time_text(found)}"
            break
        except DeviceBusy:
            raise
        except DeviceFailed as error:
            if time.monotonic() > deadline:
                raise FlashFailed(f"loaded, but does not answer: {error}") from None
            time.sleep(_PAUSE_S)
    if report is None or report.build_time is None:
        return f"{text} (no report beside the file says when it should be)"
    if found != report.build_time:
        raise FlashFailed(
            f"{text}, but {report.path} says {time_text(report.build_time)}: another image runs"
        )
    return f"{text}, as {report.path.name} says"
