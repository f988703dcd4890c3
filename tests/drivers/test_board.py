"""The server before a board: its writes to the registers, and what it does without the board."""

import threading
import time

import pytest

from afflux_drivers.aggregator import server as server_module
from afflux_drivers.aggregator.access import Access
from afflux_drivers.aggregator.board import Board, BoardFailed, interface_mac
from afflux_drivers.aggregator.server import AggregatorServer
from afflux_drivers.control.client import create_job, describe, read_counters
from afflux_drivers.control.tickets import ParentJob
from afflux_drivers.errors import AggregatorRefused
from afflux_hdl.contract import registers
from tests.support.drivers.board_registers import BoardRegisters

MAC = 0x02AF_F100_0009


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> BoardRegisters:
    monkeypatch.setattr(server_module, "interface_mac", lambda address: MAC)
    return BoardRegisters()


def test_the_node_gets_its_addresses_and_its_jobs(
    port: BoardRegisters, no_threads_left: None
) -> None:
    server = AggregatorServer(Board(port, "board", 500), access=Access(peer_share=1.0))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        for name, value in (
            ("local_mac_low", MAC & 0xFFFF_FFFF),
            ("local_mac_high", MAC >> 32),
            ("local_address", 0x7F00_0001),
            ("local_port", server.address[1]),
        ):
            assert port.read(registers.address_of(name)) == value
        said = describe(server.address, 5)
        assert (said["engine"], said["slots"], said["port"]) == ("board", 64, server.address[1])
        counters = read_counters(server.address, 5)
        first = registers.NODE_COUNTERS[0].name
        address = registers.node_counter_address(first)
        assert counters[f"node_{first}"] == address & 0xFFF | (address + 4 & 0xFFF) << 32
        assert set(counters) == {each.name for each in registers.COUNTERS} | {
            f"node_{each.name}" for each in registers.NODE_COUNTERS
        }
        # Half of what waits before the node at most, for the four together.
        lease = create_job(server.address, workers=4, lanes=16, slots=1000, timeout_s=5)
        assert lease.ticket.credit == 500 // 2 // 4
        lease.close()
        parent = ParentJob("127.0.0.1", 4700, 0, 1, 0, 2)
        with pytest.raises(AggregatorRefused, match="this aggregator cannot have a parent"):
            create_job(server.address, 1, 16, 8, 5, parent)
    finally:
        server.stop()
        thread.join(10)
    assert not thread.is_alive()
    assert not port.closed


def test_a_board_that_is_gone_ends_the_server(port: BoardRegisters, no_threads_left: None) -> None:
    server = AggregatorServer(Board(port, "board", 500))
    errors: list[BaseException] = []

    def serve() -> None:
        try:
            server.serve_forever()
        except BoardFailed as error:
            errors.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    assert describe(server.address, 5)["engine"] == "board"
    port.there = False
    deadline = time.monotonic() + 20
    while thread.is_alive():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    thread.join()
    assert "node_identity reads 0xffffffff, not 0x41464c4e" in str(errors[0])


def test_there_must_be_a_node(port: BoardRegisters) -> None:
    port.there = False
    with pytest.raises(BoardFailed, match="there is no node behind these registers"):
        Board(port, "board", 500)


def test_a_board_needs_an_interface_with_its_address() -> None:
    with pytest.raises(OSError, match=r"no Ethernet interface .* address 127\.0\.0\.1"):
        interface_mac("127.0.0.1")
    board = Board(BoardRegisters(), "board", 500)
    with pytest.raises(OSError, match=r"no Ethernet interface"):
        AggregatorServer(board)
    board.close()
