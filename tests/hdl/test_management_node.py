"""A node and its management as one board: the drivers create a job over UDP, and workers use it."""

import numpy as np
import pytest

from afflux_drivers.aggregator.board import Board
from afflux_drivers.aggregator.job_commands import NoRoom
from afflux_drivers.aggregator.jobs import JobTable, read_counters
from afflux_drivers.device.udp import UdpRegisters
from afflux_hdl.contract import management, registers
from afflux_hdl.contract.registers import WriteRefused
from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.management.management import Management
from afflux_hdl.node.parameters import NodeParameters
from afflux_sim.golden.frames import Endpoint
from afflux_sim.golden.network import join_all, make_workers, run_in_order
from tests.support.call_transport import CallTransport
from tests.support.management_bench import BenchTop, ManagementBench, build_bench
from tests.support.management_board import KEY, settings_for
from tests.support.management_frames import request_frame

pytestmark = pytest.mark.slow

WORKERS, LANES, SLOTS = 4, 2, 8
SETTINGS = settings_for("10.0.0.9", controller="10.0.0.1")
ENGINE = Endpoint(SETTINGS.mac.to_bytes(6, "big"), "10.0.0.9", SETTINGS.engine_port)
START_CYCLES = 20_000
ANSWER_CYCLES = 2_200


@pytest.fixture(scope="module")
def board():
    parameters = NodeParameters(
        engine=Parameters(bus_bits=32, workers=WORKERS, lanes=LANES, jobs=2, slots=SLOTS),
        host_buffer_bytes=2048,
        echo_buffer_bytes=2048,
    )
    top = BenchTop(
        Management(
            settings=SETTINGS, clock_hz=1e6, dhcp=False, entropy_blocks=8, entropy_spacing_bits=0
        ),
        parameters,
    )
    with ManagementBench(build_bench(top)) as bench:
        bench.reset()
        bench.run(after=START_CYCLES)
        yield bench


def open_registers(board, **options):
    def exchange(payload):
        return [frame[42:84] for frame in board.run([request_frame(payload)], after=ANSWER_CYCLES)]

    return UdpRegisters("10.0.0.9", key=KEY, transport=CallTransport(exchange), **options)


def test_a_job_over_udp(board):
    with open_registers(board) as port:
        node = Board(port, "appliance", 64)
        assert port.read(registers.address_of("local_address")) == 0x0A000009
        assert port.read(registers.address_of("local_mac_low")) == SETTINGS.mac & 0xFFFF_FFFF
        assert port.read(registers.address_of("build_workers")) == WORKERS
        jobs = JobTable(node, 1 << 20)
        job = jobs.create(WORKERS, LANES, SLOTS)
        with pytest.raises(NoRoom):
            jobs.create(WORKERS + 1, LANES, SLOTS)
        workers = make_workers(
            WORKERS,
            engine=ENGINE,
            job=job.number,
            key=job.key,
            round=job.round,
            lanes=job.lanes,
            slots=job.slots,
        )

        def receive(frame):
            return board.run([frame], after=1_000)

        join_all(receive, workers)
        tensors = [np.arange(300, dtype=np.float32) * w for w in range(WORKERS)]
        results = run_in_order(receive, workers, tensors, "float32", "sum")
        for result in results:
            np.testing.assert_array_equal(result, results[0])
        assert np.allclose(results[0], np.sum(tensors, axis=0), rtol=1e-4)
        counters = read_counters(node)
        assert counters["joins"] == WORKERS
        assert counters["rounds"] > 0
        assert counters["bad_key"] == 0
        # The frames that the node passes to its host are those that the management receives.
        frames = management.management_counter_address("management_frames")
        to_host = registers.node_counter_address("to_host")
        # The second of these reads is a frame more.
        assert port.read(frames) + 1 == port.read(to_host)
        jobs.destroy(job)
        with pytest.raises(WriteRefused, match="job_command"):
            port.write(registers.address_of("job_index"), 7)
            port.write(registers.address_of("job_command"), 1)


def test_requests_among_packets_of_a_job(board):
    """Whatever comes between, each side gets what is for it."""
    with open_registers(board) as port:
        latest = port._latest
        not_ours = management.management_counter_address("management_not_ours")
        before = port.read(not_ours)
        off = registers.node_counter_address("host_off")
        before_off = port.read(off)
        # The node keeps frames other than datagrams, the management has the others.
        junk = [bytes(60), request_frame(b"x" * 42), request_frame(b"", to="10.0.0.8")]
        assert board.run(junk, after=5_000) == []
        assert port.read(not_ours) == before + 1
        assert port.read(off) == before_off + 1
        assert port._latest == latest + 4


def test_a_storm_of_broadcasts_leaves_room_for_requests(board):
    """At twice the rate of a gigabit link: the management alone would take six times as long."""
    everybody = bytes.fromhex("ffffffffffff02000b000007")
    storm = [
        everybody + bytes.fromhex("0806 0001 0800 06 04 0001") + bytes(38),
        everybody[:6].replace(b"\xff", b"\x33", 2) + everybody[6:] + b"\x86\xdd" + bytes(46),
        # Another client's DHCP, and a name service.
        everybody + request_frame(bytes(18))[12:36] + b"\0\x43" + bytes(22),
        everybody + request_frame(bytes(18))[12:36] + b"\0\x89" + bytes(22),
    ]
    with open_registers(board) as port:
        latest = port._latest

        def exchange(payload):
            frames = [*storm * 100, request_frame(payload), *storm * 20]
            return [frame[42:84] for frame in board.run(frames, after=ANSWER_CYCLES)]

        overflow = registers.node_counter_address("host_overflow")
        before = port.read(overflow)
        with UdpRegisters("10.0.0.9", key=KEY, transport=CallTransport(exchange)) as amid:
            assert amid.read(registers.address_of("local_address")) == 0x0A000009
        # Each was answered at the first attempt.
        assert port.read(overflow) == before
        assert port._latest >= latest + 2
