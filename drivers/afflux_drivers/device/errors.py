"""Errors of a device. Messages name its URL, what was tried and what to do."""

from afflux_drivers.errors import AffluxError

__all__ = ["DeviceBusy", "DeviceFailed", "DeviceGone"]


class DeviceFailed(AffluxError):
    """A device cannot be opened, or does not do what it is asked for."""


class DeviceGone(DeviceFailed):
    """A device does not answer any more: all its registers read as ones, or it is silent."""


class DeviceBusy(DeviceFailed):
    """Another process of this host uses the device."""
