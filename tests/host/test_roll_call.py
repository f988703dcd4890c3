"""How ranks meet that come late, or that cannot take part."""

import threading
import time
from datetime import timedelta

import pytest
from torch._C._distributed_c10d import HashStore

from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.store import roll_call
from afflux.group.store.bounded import Asker, StoreSilent
from afflux.group.store.exchange import RendezvousError
from afflux.group.store.introduction import Introduction
from afflux.group.store.roll_call import RollCall

BAD = "AFFLUX_SLOTS='0': must be an integer from 1 to 512"


def introduction(error=""):
    return Introduction(AggregatorUrl("auto"), "host", 16, error, "python")


def test_who_has_declined_and_left_is_not_waited_for():
    store = HashStore()
    first, second, third = (RollCall(store, rank, 3, 20.0) for rank in range(3))
    second.introduce(introduction(BAD))
    found = []

    def come_late():
        time.sleep(0.3)
        third.introduce(introduction())
        found.append(third.next_ticket())
        third.confirm(third.keys())

    late = threading.Thread(target=come_late)
    late.start()
    first.introduce(introduction())
    started = time.monotonic()
    keys = first.keys()
    assert [each.error for each in first.call_roll(keys)] == ["", BAD, ""]
    assert time.monotonic() - started < 10
    late.join()
    assert len(found[0]["roll"]) == 3
    keys.release()


def test_a_rank_of_an_earlier_incarnation_that_tidies_up_while_the_roll_is_called(monkeypatch):
    store = HashStore()
    earlier, first = RollCall(store, 1, 2, 20.0), RollCall(store, 0, 2, 20.0)
    earlier.introduce(introduction())
    first.introduce(introduction())
    keys = first.keys()
    missing_of = roll_call.missing_of
    coming: list[threading.Timer] = []

    def tidied(*arguments):
        missing = missing_of(*arguments)
        if not coming:
            store.delete_key("afflux/0/rank/1")
            coming.append(threading.Timer(0.2, come))
            coming[0].start()
        return missing

    def come():
        second = RollCall(store, 1, 2, 20.0)
        second.introduce(introduction())
        second.next_ticket()
        own = second.keys()
        second.confirm(own)
        own.release()

    monkeypatch.setattr(roll_call, "missing_of", tidied)
    store.set_timeout(timedelta(seconds=1))
    assert len(first.call_roll(keys)) == 2
    coming[0].join()
    keys.release()


class SlowAsker(Asker):
    """Asks a store that takes longer to answer than the roll is called for."""

    def ask(self, call, limit_s, store):
        if limit_s < 0.6:
            raise StoreSilent(f"no answer for {limit_s:.3g} s")
        return super().ask(call, limit_s, store)


def test_a_store_that_is_slow_while_the_roll_is_called(monkeypatch):
    store = HashStore()
    second = RollCall(store, 1, 2, 20.0)
    second.introduce(introduction())
    monkeypatch.setattr(roll_call, "Asker", SlowAsker)
    first = RollCall(store, 0, 2, 20.0)
    first.introduce(introduction())

    def answer():
        second.next_ticket()
        keys = second.keys()
        second.confirm(keys)
        keys.release()

    answering = threading.Thread(target=answer)
    answering.start()
    keys = first.keys()
    assert len(first.call_roll(keys)) == 2
    answering.join()
    keys.release()


def test_rank_0_says_why_it_cannot_take_part_when_it_leaves():
    store = HashStore()
    first, second = (RollCall(store, rank, 3, 20.0) for rank in range(2))
    second.introduce(introduction())
    first.hurry(0.2)
    first.introduce(introduction(BAD))
    keys = first.keys()
    with pytest.raises(RendezvousError, match=f"^rank 0: {BAD}"):
        first.call_roll(keys)
    with pytest.raises(RendezvousError, match=f"^rank 0: {BAD}"):
        second.next_ticket()
    keys.release()
