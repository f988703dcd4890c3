"""A group whose ranks change in place, as torch asks for it from 2.14 on: `enable_reconfigure`."""

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from typing import Any

from afflux.adapters import native
from afflux.adapters.default_group import default_group
from afflux.group.core import Group
from afflux.group.reconfiguring import Reconfiguring
from afflux.group.settings.membership import Membership
from afflux.group.settings.options import settings_for
from afflux.group.store.keys import master_of

__all__ = ["create_reconfigurable"]


class _Changer:
    """Makes the backends of one group, one for each set of ranks. torch's C++ calls it.

    Args:
        template: All of a membership that the ranks do not determine.
        completions: Of all backends.
        is_default: Whether it is the default group.

    Attributes:
        completions: As given.
        timeout_s: Of operations.
    """

    def __init__(self, template: Membership, completions: Any, is_default: bool) -> None:
        self._template, self.completions = template, completions
        self._is_default = is_default
        self._core: Group | None = None
        self.timeout_s = template.timeout.total_seconds()
        interfaces = settings_for(template.pg_options).interface
        self._ranks = Reconfiguring(interfaces, master_of(template.store))

    def handle(self) -> str:
        """Return this rank's handle."""
        return str(self._ranks.handle)

    def reconfigure(self, uuid: int, handles: Collection[str], timeout: timedelta | None) -> Any:
        """Return the backend of these ranks; that of the last ones has ended. Collective.

        Raises:
            RendezvousError: See `Reconfiguring.met`.
            AffluxError: The group could not be formed, at any rank.
        """
        limit_s = self.timeout_s if timeout is None else timeout.total_seconds()
        with self._ranks.met(uuid, handles, limit_s, self._end) as place:
            membership = replace(
                self._template,
                store=place.store,
                rank=place.rank,
                size=place.size,
                timeout=place.left,
                global_ranks=(),
            )
            made = native.create(membership, self.completions)
        self._core = made.core
        self._core.set_timeout(timedelta(seconds=self.timeout_s))
        if self._is_default:
            default_group.be(self._core)
        return made

    def set_timeout(self, timeout: timedelta) -> None:
        """Limit the operations that are submitted from now on."""
        self.timeout_s = timeout.total_seconds()
        self._template = replace(self._template, timeout=timeout)
        if self._core is not None:
            self._core.set_timeout(timeout)

    def abort(self) -> None:
        """End what is under way, a change of ranks as well."""
        self._ranks.give_up()
        self._end()

    def _end(self) -> None:
        if self._core is not None:
            self._core.abort()


def create_reconfigurable(membership: Membership, is_default: bool) -> Any:
    """Make a backend that has no ranks before torch gives it some; nobody is met for that.

    Args:
        membership: As for another group.
        is_default: Whether it is to be the default group.
    """
    module = native.load()
    changer = _Changer(membership, module.Completions(), is_default)
    completions = changer.completions
    return module.ReconfigurableBackend(membership.rank, membership.size, changer, completions)
