"""A group's settings by `pg_options`, beside the environment."""

from dataclasses import dataclass, fields, replace
from typing import Any

from afflux.group.settings.variables import VARIABLES, Settings, SettingsError

__all__ = ["Options", "settings_for"]

_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "aggregator": ((str,), "a text"),
    "spare": ((str,), "a text"),
    "lanes": ((int,), "an integer"),
    "slots": ((int,), "an integer"),
    "interface": ((str,), "a text"),
    "require": ((bool,), "True or False"),
    "rounding": ((str,), "a text"),
    "carrier": ((str,), "a text"),
    "device_blocks": ((str,), "a text"),
}
"""The value of other fields is a number of seconds."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of one group; each that is given counts instead of its environment variable.

        dist.init_process_group("afflux", pg_options=afflux.Options(slots=64))

    Groups that are made later without `pg_options` have those of the default group, and the parts
    of a group that is split have the group's. The values, units and defaults are those of the
    variables (`afflux.group.settings.variables`); times are in seconds. All ranks must give the
    same `rounding`, `carrier` and `device_blocks`, and the same `aggregator`, or aggregators with
    the same parent.

    Attributes:
        aggregator: As AFFLUX_AGGREGATOR, such as "shm://" or "udp://host:4700".
        spare: As AFFLUX_SPARE: one, or several as "udp://one:4700,udp://other:4700". Rank 0's
            counts.
        lanes: As AFFLUX_LANES.
        slots: As AFFLUX_SLOTS. Rank 0's counts.
        interface: As AFFLUX_INTERFACE: one, or several as "eth1,eth2".
        require: As AFFLUX_REQUIRE. Rank 0's counts.
        rounding: As AFFLUX_ROUNDING: "exact", or "host".
        carrier: As AFFLUX_CARRIER: "tcp", "ucx" or "auto".
        device_blocks: As AFFLUX_DEVICE_BLOCKS: "auto", "on" or "off".
        connect_timeout_s: As AFFLUX_CONNECT_TIMEOUT.
        start_timeout_s: As AFFLUX_START_TIMEOUT.
        peer_timeout_s: As AFFLUX_PEER_TIMEOUT.
        fail_back_s: As AFFLUX_FAIL_BACK. Rank 0's counts.
        close_timeout_s: As AFFLUX_CLOSE_TIMEOUT.
    """

    aggregator: str | None = None
    spare: str | None = None
    lanes: int | None = None
    slots: int | None = None
    interface: str | None = None
    require: bool | None = None
    rounding: str | None = None
    carrier: str | None = None
    device_blocks: str | None = None
    connect_timeout_s: float | None = None
    start_timeout_s: float | None = None
    peer_timeout_s: float | None = None
    fail_back_s: float | None = None
    close_timeout_s: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) is not None:
                self._parsed(field.name)

    def over(self, settings: Settings) -> Settings:
        """Return these settings with the values that are given here."""
        names = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        values: dict[str, Any] = {name: self._parsed(name) for name in names}
        return replace(settings, **values)

    def _parsed(self, name: str) -> object:
        value = getattr(self, name)
        shown = f"afflux.Options({name}={value!r})"
        wanted, kind = _KINDS.get(name, ((int, float), "a number"))
        if not isinstance(value, wanted) or isinstance(value, bool) is not (wanted == (bool,)):
            raise TypeError(f"{shown}: must be {kind}, not {type(value).__name__}")
        # The same parser as for the variable: one rule, one message.
        (parse,) = [parse for field, parse in VARIABLES.values() if field == name]
        try:
            return parse(str(int(value) if isinstance(value, bool) else value))
        except ValueError as error:
            raise SettingsError(f"{shown}: {error}") from None


def settings_for(pg_options: Any) -> Settings:
    """Return the settings of a group that is made with these `pg_options`.

    Raises:
        SettingsError: A value in the environment is wrong.
        TypeError: The options are another backend's, or anything else.
    """
    if pg_options is None:
        return Settings.from_environment()
    if not isinstance(pg_options, Options):
        kind = type(pg_options)
        raise TypeError(
            f"the backend afflux takes pg_options=afflux.Options(...), not "
            f"{kind.__module__}.{kind.__qualname__}: {pg_options!r}"
        )
    return pg_options.over(Settings.from_environment())
