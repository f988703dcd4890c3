"""Groups whose ranks share memory: how they come to it, what an idle one costs, what is left."""

import collections
import contextlib
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux.group.forming import shared_memory
from afflux_drivers.shared.segment import SegmentClaim, SegmentOffer, ShareRefused
from tests.support.host.ranks import caught, failure_heard, run_ranks, values
from tests.support.host.warnings_heard import Recording

SHM = {"AFFLUX_AGGREGATOR": "shm://"}


# How the memory is handed over.


def handed(ranks, ask, timeout_s=1.0):
    """Ranks that did not map a segment while `ask(offer)` runs; others learn that it ends well."""
    offer = SegmentOffer(ranks)
    try:
        thread = threading.Thread(target=offer.serve, args=(timeout_s,))
        thread.start()
        ask(offer)
        thread.join()
        return offer.missing
    finally:
        offer.conclude(not offer.missing)
        os.close(offer.descriptor)


def claimed(offer, rank):
    return SegmentClaim(offer.name, offer.secret, rank, 1.0)


def mapped(offer, rank):
    """Map it, as far as rank 0 knows; return the claim."""
    claim = claimed(offer, rank)
    os.close(claim.descriptor)
    claim.answer()
    return claim


def test_every_rank_gets_the_same_memory():
    files, claims = [], []

    def ask(offer):
        files.append(os.fstat(offer.descriptor).st_ino)
        for rank in (2, 1):
            claim = claimed(offer, rank)
            claims.append(claim)
            files.append(os.fstat(claim.descriptor).st_ino)
            assert not os.get_inheritable(claim.descriptor)
            os.close(claim.descriptor)
            claim.answer()

    assert handed(3, ask) == set()
    assert len(set(files)) == 1
    assert [claim.agreed(1.0) for claim in claims] == [True, True]


def test_who_ends_before_all_have_come_is_awaited_again():
    claims = []

    def ask(offer):
        mapped(offer, 1).close()
        claims.append(mapped(offer, 2))
        time.sleep(0.1)
        claims.append(mapped(offer, 1))

    assert handed(3, ask) == set()
    assert [claim.agreed(1.0) for claim in claims] == [True, True]


def test_one_that_cannot_map_it_ends_the_waiting():
    claims = []

    def ask(offer):
        claims.append(mapped(offer, 2))
        claims.append(claimed(offer, 1))
        os.close(claims[-1].descriptor)
        claims[-1].answer("no memory")

    started = time.monotonic()
    assert 1 in handed(4, ask, timeout_s=20.0)
    assert time.monotonic() - started < 10
    assert [claim.agreed(1.0) for claim in claims] == [False, False]


def test_a_wrong_secret_gets_nothing():
    def ask(offer):
        with pytest.raises(ShareRefused, match="did not hand"):
            SegmentClaim(offer.name, "x" * 32, 1, 1.0)

    assert handed(2, ask) == {1}


def test_someone_who_says_nothing_holds_nobody_up():
    def ask(offer):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
            silent.connect(b"\0" + offer.name.encode())
            mapped(offer, 1)

    assert handed(2, ask) == set()


def test_a_name_that_nobody_listens_at():
    started = time.monotonic()
    with pytest.raises(ShareRefused, match="cannot reach rank 0's memory"):
        SegmentClaim("afflux-nobody", "x" * 32, 1, 20.0)
    assert time.monotonic() - started < 10


def test_another_user_gets_nothing(monkeypatch):
    monkeypatch.setattr("afflux_drivers.shared.segment._user_of", lambda _: os.geteuid() + 1)

    def ask(offer):
        with pytest.raises(ShareRefused, match="another user"):
            claimed(offer, 1)

    assert handed(2, ask) == {1}


# Which way a group goes.


def which_engine(rank, _size):
    tensor = torch.ones(100_000)
    dist.all_reduce(tensor)
    return afflux.statistics()["engine"], tensor[7].item()


def test_one_host_shares_memory_without_being_asked():
    assert values(run_ranks(which_engine, 3)) == [("shm", 3)] * 3


def on_another_host(rank, size, elsewhere):
    # The default group is there already; the next one meets a rank from elsewhere.
    if rank == elsewhere:
        afflux.group.forming.rendezvous.host_identity = lambda: "another host"
    warnings = warnings_of(lambda: [dist.new_group(), dist.new_group()])
    return *engine_of(warnings[1][1]), warnings[0]


def warnings_of(make):
    """Return what Afflux warns of while `make` runs, and what that returns."""
    recording = Recording()
    return recording.messages, make()


def engine_of(group):
    """Return the group's engine, a sum that it has made, and when it came to and left a barrier."""
    tensor = torch.ones(10)
    dist.all_reduce(tensor, group=group)
    if dist.get_rank() == 1:
        time.sleep(0.5)
    # The processes of a host have one monotonic clock.
    came = time.monotonic()
    dist.barrier(group=group)
    return afflux.statistics(group)["engine"], tensor[0].item(), came, time.monotonic()


@pytest.mark.parametrize("elsewhere", [0, 2])
def test_several_hosts_go_through_gloo(elsewhere):
    environment = {
        "AFFLUX_AGGREGATOR": "auto",
        "AFFLUX_INTERFACE": "nonesuch0",
        "MASTER_ADDR": "no-such-host.invalid",
    }
    got = values(run_ranks(on_another_host, 3, elsewhere, environment=environment))
    assert [each[:2] for each in got] == [("gloo", 3)] * 3
    assert max(came for _, _, came, _, _ in got) <= min(left for _, _, _, left, _ in got)
    (warning,) = got[0][4]
    assert "another host or in another network namespace" in warning
    assert f"rank {elsewhere or 1} is on another" in warning
    assert "AFFLUX_AGGREGATOR=udp://" in warning
    assert f"rank {elsewhere or 1}: AFFLUX_INTERFACE=nonesuch0" in warning
    assert [each[4] for each in got[1:]] == [[], []]


def memory_out_of_reach(rank, size):
    # As where a cloned machine has the same name for itself.
    if rank == 1:
        shared_memory.SegmentClaim = out_of_reach  # type: ignore[assignment]
    started = time.monotonic()
    group = dist.new_group()
    tensor = torch.ones(10)
    dist.all_reduce(tensor, group=group)
    return afflux.statistics(group)["engine"], tensor[0].item(), time.monotonic() - started


def out_of_reach(*_):
    raise ShareRefused("cannot reach rank 0's memory: [Errno 111] Connection refused")


def test_what_counts_is_the_memory_not_the_name():
    for engine, value, seconds in values(run_ranks(memory_out_of_reach, 3)):
        assert (engine, value) == ("gloo", 3)
        assert seconds < 15


def insist(rank, _size, hindrance):
    if rank == 1 and hindrance == "claim":
        shared_memory.SegmentClaim = out_of_reach  # type: ignore[assignment]
    if rank == 0 and hindrance == "memfd":
        os.memfd_create = no_memfd
    return caught(dist.new_group)


def no_memfd(*_):
    raise OSError(38, "Function not implemented")


@pytest.mark.parametrize(
    ("hindrance", "says"),
    [
        ("claim", "rank 1: cannot reach rank 0's memory"),
        ("memfd", "rank 0: [Errno 38] Function not implemented"),
    ],
)
def test_shm_insists(hindrance, says):
    for message, kind, _ in values(run_ranks(insist, 3, hindrance, environment=SHM)):
        assert kind == "RendezvousError"
        assert "shm://" in message
        assert says in message


def no_counters(_rank, _size):
    # A rank that ends at once may do so while the other still connects to it.
    dist.barrier()
    return caught(afflux.engine_counters)


def test_there_is_no_aggregator_to_ask():
    for message, kind, _ in values(run_ranks(no_counters, 2, environment=SHM)):
        assert kind == "ValueError"
        assert "there is no aggregator" in message


def count_many(rank, size):
    tensor = torch.full((1000,), float(rank))
    dist.all_reduce(tensor)
    return tensor[0].item()


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [16, pytest.param(64, marks=pytest.mark.long)])
def test_many_ranks(ranks):
    got = values(run_ranks(count_many, ranks, environment=SHM, timeout_s=120, limit_s=200))
    assert got == [ranks * (ranks - 1) / 2] * ranks


# Order of operations in the callers' threads and in the group's.


def mix_waiting_and_not(rank, _size):
    tensors = [torch.full((10 + 5000 * (n % 3),), float(n + rank)) for n in range(60)]
    works = [dist.all_reduce(each, async_op=n % 4 != 0) for n, each in enumerate(tensors)]
    for work in works:
        if work is not None:
            work.wait()
    return [each[-1].item() for each in tensors]


def test_what_is_waited_for_keeps_its_place():
    for got in values(run_ranks(mix_waiting_and_not, 3, environment=SHM)):
        assert got == [3 * n + 3 for n in range(60)]


def two_threads(rank, _size):
    groups = [dist.new_group(), dist.new_group()]
    sums = [0.0, 0.0]

    def work(which):
        for n in range(100):
            tensor = torch.full((50,), float(n + which))
            dist.all_reduce(tensor, group=groups[which])
            sums[which] += tensor[0].item()

    threads = [threading.Thread(target=work, args=(which,)) for which in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sums


def test_groups_in_threads_of_their_own():
    want = [2.0 * sum(range(100)), 2.0 * sum(range(1, 101))]
    assert values(run_ranks(two_threads, 2, environment=SHM)) == [want, want]


# An idle rank.


def times_woken():
    """Return how often each of the group's threads has gone to sleep."""
    count = {}
    for thread in threading.enumerate():
        if thread.name.startswith("afflux-"):
            with open(f"/proc/self/task/{thread.native_id}/status", encoding="ascii") as status:
                (line,) = [line for line in status if line.startswith("voluntary_ctxt_switches")]
            count[thread.name] = int(line.split()[1])
    return count


def threads_say(file):
    """Yield the kernel's name for each other thread of this process, and one of its files' text."""
    # This one sleeps or measures; the time of measuring is not to be counted.
    for thread in Path("/proc/self/task").iterdir():
        if thread.name == str(threading.get_native_id()):
            continue
        # One of the start may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            name = (thread / "comm").read_text(encoding="ascii").strip()
            yield name, (thread / file).read_text(encoding="ascii")


def time_used():
    """Return the nanoseconds that the process's threads have run, by the kernel's name for each."""
    count: collections.Counter[str] = collections.Counter()
    for name, text in threads_say("schedstat"):
        count[name] += int(text.split()[0])
    return count


def gloo_looks():
    """Return how often each of Gloo's transport threads has gone to sleep."""
    return [
        int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
        for name, text in threads_say("status")
        if name == "gloo_tcp_loop"
    ]


def sleep_for_a_while(_rank, _size):
    for _ in range(3):
        dist.all_reduce(torch.ones(1000))
    # Too much for the caller's thread, so the progress thread starts.
    dist.all_reduce(torch.ones(1 << 20), async_op=True).wait()
    # Work that a group's start leaves to its threads, at any rank, is over by then.
    dist.barrier()
    time.sleep(1.5)
    before, used, looks = times_woken(), time_used(), gloo_looks()
    started = time.monotonic()
    time.sleep(3)
    (first,), (last,) = looks, gloo_looks()
    looks_per_s = (last - first) / (time.monotonic() - started)
    measured = before, times_woken(), time_used() - used, looks_per_s
    # A rank that is ahead must not end its group, of which the others hear, before they are here.
    dist.barrier()
    return measured


@pytest.mark.parametrize("url", ["shm://", "soft://"])
def test_an_idle_rank_uses_no_processor(url):
    environment = {"AFFLUX_AGGREGATOR": url}
    outcomes = run_ranks(sleep_for_a_while, 2, environment=environment, tcp_store=True)
    for rank, (before, after, used, looks_per_s) in enumerate(values(outcomes)):
        assert {"afflux-watch", f"afflux-0-rank{rank}"} <= before.keys()
        assert after == before
        # Of Gloo's there is one, which looks up a hundred times a second; the cost of a look is the
        # machine's.
        assert looks_per_s <= 110
        del used["gloo_tcp_loop"]
        assert used.total() < 10_000_000, used


def hear_of_a_failure(rank, _size):
    dist.all_reduce(torch.ones(3))
    if rank == 0:
        return caught(lambda: dist.all_reduce(torch.ones(3)))[0]
    return str(failure_heard())


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("tcp_store", [True, False])
def test_an_idle_rank_hears_of_a_failure(tcp_store):
    for message in values(run_ranks(hear_of_a_failure, 3, timeout_s=2, tcp_store=tcp_store)):
        assert "all_reduce sum float32 (3,) (operation 2)" in message
        assert " Timed out waiting 2000ms " in message
        for rank in (1, 2):
            assert f"rank {rank}: nothing since all_reduce sum float32 (3,)" in message


# Ends.


def be_killed(rank, _size, size_of_tensor):
    tensor = torch.ones(size_of_tensor)
    dist.all_reduce(tensor)
    if rank == 1:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
    for n in range(1_000_000):
        tensor.fill_(1)
        message, kind, seconds = caught(lambda: dist.all_reduce(tensor))
        if message:
            return message, kind, seconds, n
        if tensor[0] != 3 or tensor[-1] != 3:
            return "a wrong sum", "", 0, n
    return "never", "", 0, 0


@pytest.mark.parametrize("size_of_tensor", [10, 5_000, 3_000_000])
def test_a_rank_that_is_killed_is_named_at_once(size_of_tensor):
    outcomes = run_ranks(be_killed, 3, size_of_tensor, environment=SHM)
    assert outcomes[1].kind == "died"
    for rank in (0, 2):
        message, kind, seconds, _ = outcomes[rank].value
        assert kind in ("RanksEnded", "GroupFailed"), message
        assert "rank(s) 1 ended" in message
        assert "rank 1: does not answer" in message
        assert seconds < 5


def leave_nothing(_rank, _size):
    def mapped():
        with open("/proc/self/maps", encoding="ascii") as maps:
            return sum("memfd:afflux" in line for line in maps)

    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    group = dist.new_group()
    dist.all_reduce(torch.ones(10), group=group)
    dist.destroy_process_group(group)
    before = mapped(), descriptors()
    for _ in range(3):
        group = dist.new_group()
        dist.all_reduce(torch.ones(10), group=group)
        tensor = afflux.empty(1000, group=group)
        dist.destroy_process_group(group)
        del tensor
    dist.barrier()
    deadline = time.monotonic() + 10
    # Gloo's threads end behind the group's back.
    while descriptors() > before[1] + 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    return before, (mapped(), descriptors())


def test_a_group_leaves_nothing_behind():
    for before, after in values(run_ranks(leave_nothing, 2, environment=SHM)):
        assert after[0] == before[0]
        # Gloo opens its connections when it likes.
        assert after[1] <= before[1] + 2


def fork_in_flight(rank, _size):
    tensor = torch.ones(2_000_000)
    work = dist.all_reduce(tensor, async_op=True)
    pid = os.fork()
    if pid == 0:
        # It drops what it has of the group, and must not take the rank's place with it.
        os._exit(0 if caught(lambda: dist.all_reduce(torch.ones(3)))[1] == "GroupClosed" else 1)
    work.wait()
    _, status = os.waitpid(pid, 0)
    again = torch.ones(3)
    dist.all_reduce(again)
    return status, tensor[0].item(), again[0].item()


def test_fork_with_an_operation_in_flight():
    assert values(run_ranks(fork_in_flight, 2, environment=SHM)) == [(0, 2, 2)] * 2


def be_interrupted(rank, _size):
    dist.all_reduce(torch.ones(3))
    if rank == 0:
        # A user that starts tests in the background may have it ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            dist.all_reduce(torch.ones(3))
        except KeyboardInterrupt:
            return "interrupted"
        return "not interrupted"
    failure_heard()
    return caught(lambda: dist.all_reduce(torch.ones(3)))[0]


def test_ctrl_c_ends_an_operation_in_the_callers_thread():
    first, second = values(run_ranks(be_interrupted, 2, environment=SHM))
    assert first == "interrupted"
    assert "rank 0 failed: all_reduce sum float32 (3,) (operation 2): given up" in second
