"""docs/protocol.md section 5.5: results to a multicast group, at the engine and at the worker."""

import random
from dataclasses import replace

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether, getmacbyip

from afflux_sim.golden.frames import (
    CONFLICT,
    JOINED,
    MISSING,
    REFUSED,
    RESULT,
    GroupAddress,
    build_frame,
    parse_packet,
)
from afflux_sim.golden.network import run_in_order, run_unkindly
from afflux_sim.golden.reductions import all_reduce
from tests.support.golden_job import ENGINE, FIRST_ROUND, GROUP_KEY, JOB, KEY, new_engine, new_job
from tests.support.golden_tensors import bits_of, draw

GROUP = GroupAddress("239.1.2.3", 4701)


@pytest.mark.parametrize("address", ["224.0.0.1", "239.1.2.3", "239.129.2.3", "239.255.255.255"])
def test_mac_address_of_a_group(address):
    # Scapy knows the rule too.
    mac = GroupAddress(address, 1).endpoint.mac.hex(":")
    assert mac == getmacbyip(address)


def test_a_group_must_be_multicast():
    with pytest.raises(ValueError):
        new_job(workers=1, lanes=1, group=GroupAddress("10.0.0.1", 4701))


def test_a_result_goes_once_to_the_group_and_replays_to_one_worker():
    engine, workers = new_job(workers=3, lanes=2, group=GROUP)
    frames = []
    for worker in workers:
        worker.start(np.ones(500, np.float32), "float32", "sum")
        frames += worker.frames_to_send()
    assert engine.receive(frames[0]) == engine.receive(frames[1]) == []
    (result,) = engine.receive(frames[2])
    seen = Ether(result)
    assert (seen.dst, seen[IP].dst, seen[UDP].dport) == ("01:00:5e:01:02:03", "239.1.2.3", 4701)
    assert (seen[IP].src, seen[UDP].sport) == (ENGINE.address, ENGINE.port)
    packet = parse_packet(result)
    assert (packet.type, packet.worker, packet.job) == (RESULT, 255, JOB)
    # A listener to the group learns nothing that lets it join or contribute.
    assert packet.key == GROUP_KEY
    assert KEY.to_bytes(8, "little") not in result
    for question in (frames[1], workers[1].retransmit(0, probe=True)):
        (replay,) = engine.receive(question)
        back = parse_packet(replay)
        assert replace(back, worker=255, key=GROUP_KEY).to_bytes() == packet.to_bytes()
        assert (back.worker, back.key, replay[0:6]) == (1, KEY, workers[1].endpoint.mac)


def test_a_result_goes_to_the_group_whoever_has_joined():
    engine, workers = new_job(workers=2, lanes=2, group=GROUP)
    for worker in workers:
        worker.start(np.ones(9, np.float32), "float32", "sum")
    first, last = (worker.frames_to_send()[0] for worker in workers)
    engine.receive(first)
    # Not reachable through packets: a worker that has not joined cannot have contributed.
    job = engine.jobs[JOB]
    assert job is not None
    job.joined.pop(0)
    assert len(engine.receive(last)) == 1


def test_joined_tells_the_group():
    engine = new_engine()
    for number, group in ((0, GROUP), (1, None)):
        engine.create_job(
            number,
            key=KEY,
            workers=1,
            lanes=1,
            slot_base=number,
            slot_count=1,
            round=FIRST_ROUND,
            credit=1,
            group=group,
            group_key=GROUP_KEY if group else 0,
        )
    _, (worker,) = new_job(workers=1, lanes=1)
    told = (0xEF010203, 4701, GROUP_KEY & 0xFFFFFFFF, GROUP_KEY >> 32)
    for number, words in ((0, told), (1, (0, 0, 0, 0))):
        frame = bytearray(worker.join())
        frame[44] = number
        (answer,) = engine.receive(bytes(frame))
        packet = parse_packet(answer)
        assert (packet.type, packet.words[4:8], packet.words[8:]) == (JOINED, words, (0,) * 8)


@pytest.mark.parametrize("type_", [RESULT, CONFLICT])
@pytest.mark.parametrize("group", [GROUP, None])
def test_a_worker_takes_results_for_everyone_only_of_its_group(type_, group):
    engine, (worker,) = new_job(workers=1, lanes=2, group=group)
    worker.start(np.ones(500, np.float32), "float32", "sum")
    (frame,) = worker.frames_to_send()
    packet = replace(parse_packet(engine.receive(frame)[0]), type=type_, worker=255)
    elsewhere = GroupAddress("239.1.2.4", 4701), GroupAddress("239.1.2.3", 4702)
    for wrong in elsewhere:
        worker.receive(build_frame(ENGINE, wrong.endpoint, packet))
    for short in (JOINED, MISSING, REFUSED):
        answer = replace(packet, type=short, blocks={})
        worker.receive(build_frame(ENGINE, GROUP.endpoint, answer))
    assert (worker.frames_to_send(), worker.error, worker.missing) == ([], None, {})
    worker.receive(build_frame(ENGINE, GROUP.endpoint, packet))
    taken = bool(worker.frames_to_send()) or worker.error is not None
    assert taken == (group is not None)


@pytest.mark.parametrize("seed", range(5))
def test_all_reduces_by_multicast(seed):
    rng = np.random.default_rng(seed)
    choose = random.Random(seed)
    engine, workers = new_job(workers=3, lanes=2, slots=2, group=GROUP)
    for dtype, reduction in (("float32", "avg"), ("int32", "sum"), ("bfloat16", "max")):
        tensors = [draw(rng, "sparse", dtype, 1000) for _ in workers]
        expected = bits_of(all_reduce(tensors, dtype, reduction), dtype)
        run = run_in_order(engine.receive, workers, tensors, dtype, reduction)
        run += run_unkindly(engine.receive, workers, tensors, dtype, reduction, choose=choose)
        assert all((bits_of(result, dtype) == expected).all() for result in run)
    # One frame for each round, one for each short answer and replay.
    counters = engine.counters
    answers = counters["joins"] + counters["probes"] + counters["duplicates"]
    assert counters["frames_out"] <= counters["rounds"] + answers
