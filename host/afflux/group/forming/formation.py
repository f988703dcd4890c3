"""Forms a group at one rank: its reducer, its Gloo, and what watches the other ranks."""

from typing import Any, NamedTuple

from torch._C._distributed_c10d import PrefixStore

from afflux.group.call.parts import ListKeys
from afflux.group.forming.rendezvous import meet
from afflux.group.liveness.witness import Witness
from afflux.group.reducers.fallback import GlooFallback
from afflux.group.reducers.gloo import make_gloo
from afflux.group.reducers.reducer import Reducer
from afflux.group.settings.membership import Membership
from afflux.group.settings.variables import Settings
from afflux.group.store.keys import GroupStore

__all__ = ["Formed", "form"]


class Formed(NamedTuple):
    """The parts of a group at one rank.

    Attributes:
        reducer: Carries out its collectives.
        gloo: Carries its sends and receives.
        fallback: Carries out what the reducer does not, by the same Gloo.
        keys: In torch's store; to be released with the group.
        witness: Tells which ranks are gone.
    """

    reducer: Reducer[Any]
    gloo: Any
    fallback: GlooFallback
    keys: GroupStore
    witness: Witness


def form(membership: Membership, settings: Settings, list_keys: ListKeys | None = None) -> Formed:
    """Meet the other ranks of a new group, and make all that it consists of. Collective.

    Args:
        membership: Of this rank. Its store is used by no other thread meanwhile.
        settings: This rank's.
        list_keys: Lists the store; None if the keys of earlier groups are to stay there.

    Raises:
        AffluxError: At every rank, for the same reason.
    """
    rank, size = membership.rank, membership.size
    reducer, keys = meet(membership, settings)
    witness = Witness()
    try:
        if not reducer.notices_ends:
            witness.meet(membership, keys, settings)
        # Of this incarnation of the group: an earlier one over the same store had other keys.
        gloo = make_gloo(PrefixStore("gloo", keys.store), membership)
        fallback = GlooFallback(gloo, membership.store, rank, size)
    except BaseException:
        witness.close()
        reducer.leave()
        keys.release()
        raise
    keys.tidy(list_keys)
    return Formed(reducer, gloo, fallback, keys, witness)
