"""The client of a board's management, at a real socket, with the golden model behind it."""

import random
import threading

import pytest

from afflux_drivers.device import udp
from afflux_drivers.device.errors import DeviceFailed, DeviceGone
from afflux_drivers.device.management_message import Answer, Request
from afflux_drivers.device.udp import (
    DeviceRestarted,
    OutcomeUnknown,
    UdpRegisters,
    WrongKey,
)
from afflux_hdl.contract import management, registers
from afflux_hdl.contract.management import MessageType
from afflux_hdl.contract.registers import WriteRefused
from tests.support.call_transport import CallTransport
from tests.support.management_board import KEY, BoardOnSocket

ADDRESS = 0x040


@pytest.fixture
def board():
    with BoardOnSocket() as made:
        yield made


def client(board, **options):
    return UdpRegisters("127.0.0.1", board.port, key=KEY, **options)


def test_reads_and_writes(board):
    with client(board) as port:
        assert port.read(registers.address_of("identity")) == registers.IDENTITY
        port.write(ADDRESS, 0xFFFF_FFFF)
        assert port.read(ADDRESS) == 0xFFFF_FFFF
        with pytest.raises(WriteRefused, match="identity cannot be written"):
            port.write(0x000, 1)
        assert port.read(0x0F8) == 0
        name = b"".join(
            port.read(management.management_address_of(f"board_name_{n}")).to_bytes(4, "little")
            for n in range(4)
        )
        assert name.rstrip(b"\0") == b"test board"
        executed = management.management_counter_address("management_executed")
        assert port.read(executed) == 9
    assert board.registers.writes == [(ADDRESS, 0xFFFF_FFFF), (0x000, 1)]
    # A key that is written is not to be seen.
    assert not any(b"\xff\xff\xff\xff" in payload for payload in board.seen)


@pytest.mark.parametrize("seed", range(3))
def test_a_bad_network_changes_nothing(seed):
    with BoardOnSocket(loss=0.15, twice=0.2, late=0.1, seed=seed) as board:
        choose = random.Random(seed)
        wanted = []
        with client(board, timeout_s=20.0) as port:
            for _ in range(40):
                value = choose.getrandbits(32)
                wanted.append((ADDRESS + 4 * choose.randrange(4), value))
                port.write(*wanted[-1])
                assert port.read(wanted[-1][0]) == value
        assert board.registers.writes == wanted


def test_two_clients_do_not_break_each_other():
    with BoardOnSocket(loss=0.02, twice=0.1, late=0.05) as board:
        failures = []

        def use(number):
            try:
                with client(board, timeout_s=20.0) as port:
                    for n in range(60):
                        # Others are so fast here that an answer that is lost may be forgotten.
                        try:
                            port.write(ADDRESS + 4 * number, n)
                        except OutcomeUnknown:
                            if port.read(ADDRESS + 4 * number) != n:
                                port.write(ADDRESS + 4 * number, n)
                        assert port.read(ADDRESS + 4 * number) == n
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=use, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failures
        # Each write once and in its client's order.
        for number in range(3):
            mine = [v for a, v in board.registers.writes if a == ADDRESS + 4 * number]
            assert mine == list(range(60))
        assert board.golden.counters["management_refused"] > 0


def test_a_lost_answer_is_found_again_although_others_go_on(board):
    with client(board) as first, client(board) as second:
        board.drop_answers = 1
        done = threading.Event()
        others = threading.Thread(
            target=lambda: [done.wait(0.005) or second.read(0x000) for _ in range(3)]
        )
        others.start()
        first.write(ADDRESS, 5)
        others.join(10)
        assert board.registers.writes == [(ADDRESS, 5)]
        # More than once where a core was busy for longer than the client's first wait.
        assert board.golden.counters["management_repeats"] >= 1


def test_what_is_forgotten_is_said(board):
    def busy(payload):
        verdict, answer = board.golden.judge(payload)
        if payload[3] == MessageType.WRITE and verdict == "management_executed":
            for _ in range(65):
                other.read(0x000)
            return []
        return [answer] if answer else []

    with client(board) as other:
        port = UdpRegisters(
            "127.0.0.1", board.port, key=KEY, transport=CallTransport(busy), timeout_s=0.5
        )
        with pytest.raises(OutcomeUnknown, match="write of job_index: the answer was lost"):
            port.write(ADDRESS, 5)
        assert board.registers.writes == [(ADDRESS, 5)]
        # A read simply comes again, and the object is still good.
        assert port.read(ADDRESS) == 5


def test_a_restart_is_told_and_nothing_goes_on_silently(board):
    with client(board, timeout_s=1.0) as port:
        port.write(ADDRESS, 1)
        board.restart()
        for _ in range(2):
            with pytest.raises(
                DeviceRestarted, match="write of job_index: the board has been rese"
            ):
                port.write(ADDRESS, 2)
        with pytest.raises(DeviceRestarted, match="read of job_index"):
            port.read(ADDRESS)
        assert board.registers.writes == []
    with client(board) as port:
        assert port.read(ADDRESS) == 0


def test_reset_goes_on_with_the_new_session(board):
    with client(board) as port:
        port.write(ADDRESS, 1)
        port.reset()
        assert port.read(ADDRESS) == 0
        # Also if the answer is lost, and the board is new when the request comes again.
        board.drop_answers = 1
        port.write(ADDRESS, 1)
        port.reset()
        assert port.read(ADDRESS) == 0
        with pytest.raises(WriteRefused):
            port.write(management.management_address_of("board_reset"), 1)


def test_a_wrong_key_is_told(board):
    with pytest.raises(WrongKey, match=f"udp://127.0.0.1:{board.port}: open: .* none under this"):
        UdpRegisters("127.0.0.1", board.port, key=bytes(15) + b"\1", timeout_s=0.2)


def test_silence_is_told(board):
    with client(board, timeout_s=0.2) as port:
        board.silent = True
        with pytest.raises(
            DeviceGone, match=r"write of job_key_low: no answer within 0\.2 s, to \d"
        ):
            port.write(0x044, 1)
        with pytest.raises(DeviceGone, match="read of identity"):
            port.read(0)
        board.silent = False
        # The write was carried out, once; the object goes on.
        assert board.registers.writes == [(0x044, 1)]
        assert port.read(0) == registers.IDENTITY
    with pytest.raises(DeviceGone, match="open: no answer"):
        # Nobody is there: the kernel says so, and that is not believed at once.
        UdpRegisters("127.0.0.1", 1, key=KEY, timeout_s=0.1)


def test_a_write_that_was_held_back_is_stale_once_the_client_goes_on(board):
    held: list[bytes] = []

    def exchange(payload):
        if payload[3] == MessageType.WRITE and len(held) < 10:
            held.append(payload)
            return []
        answer = board.golden.judge(payload)[1]
        return [answer] if answer else []

    port = UdpRegisters(
        "127.0.0.1", board.port, key=KEY, transport=CallTransport(exchange), timeout_s=0.05
    )
    with pytest.raises(DeviceGone, match="may or may not"):
        port.write(ADDRESS, 1)
    assert port.read(ADDRESS) == 0
    for payload in held:
        assert board.golden.judge(payload)[0] == "management_refused"
    assert board.registers.writes == []


def test_a_board_that_passes_another_on_is_found(board):
    """Somebody on the path leads packets to another board that has the same key."""
    with pytest.raises(DeviceFailed, match=r"that of a board at 127\.0\.0\.1"):
        UdpRegisters(
            "127.0.0.5",
            board.port,
            key=KEY,
            transport=CallTransport(lambda payload: [board.golden.judge(payload)[1]]),
            timeout_s=0.2,
        )


def test_every_bit_of_an_answer_counts():
    request = Request.access(
        KEY, MessageType.READ, session=3, sequence=4, address=8, value=0, board=bytes(4)
    )
    with BoardOnSocket() as board:
        golden = board.golden
        golden.address, golden.session, golden.latest = bytes(4), 3, 3
        answer = golden.judge(request.payload)[1]
    assert answer is not None
    assert Answer.read(KEY, request, answer) is not None
    for bit in range(8 * len(answer)):
        flipped = bytearray(answer)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert Answer.read(KEY, request, bytes(flipped)) is None
        except ValueError:
            continue


def test_an_answer_belongs_to_one_request():
    """Of two clients' requests with one number, the answer to one is none to the other."""
    with BoardOnSocket() as board:
        golden = board.golden
        requests = [
            Request.access(
                KEY,
                MessageType.WRITE,
                session=golden.session,
                sequence=1,
                address=ADDRESS,
                value=value,
                board=golden.address,
            )
            for value in (1, 2)
        ]
        answer = golden.judge(requests[0].payload)[1]
    assert answer is not None
    assert Answer.read(KEY, requests[0], answer) is not None
    assert Answer.read(KEY, requests[1], answer) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": b"short"}, "has 16 bytes, not 5"),
        ({"port": 0}, "port must be 1 to 65535, not 0"),
        ({"timeout_s": 0}, "timeout_s must be more than 0"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        UdpRegisters("127.0.0.1", **({"key": KEY} | options))


def test_bad_accesses(board):
    with client(board) as port:
        with pytest.raises(ValueError, match="job_index has 32 bits, and cannot be 0x100000000"):
            port.write(ADDRESS, 1 << 32)
        with pytest.raises(ValueError, match="0x41 is not the address of a register"):
            port.read(0x41)
    with pytest.raises(DeviceFailed, match=r"udp://no\.such\.host\.invalid: .* is not known"):
        UdpRegisters("no.such.host.invalid", key=KEY)


def test_waits_are_bounded():
    waits = list(udp._waits(3.0))
    assert waits[:3] == [0.005, 0.01, 0.02]
    assert sum(waits) >= 3.0
    assert len(waits) < 15
    assert list(udp._waits(3.0, 0.04))[:2] == [0.04, 0.08]
    # Answers may have taken as long as they may.
    assert list(udp._waits(3.0, 5.0))[:2] == [0.1, 0.2]


def test_a_board_that_takes_long_is_not_asked_again_and_again(board):
    board.slow_s = 0.02
    with client(board, timeout_s=20.0) as port:
        for _ in range(10):
            port.read(0x000)
        before = len(board.seen)
        for _ in range(20):
            port.read(0x000)
        # 3 of each, if every one were sent again after 5 ms and 10 more.
        assert len(board.seen) - before < 30
        # And after one that is as fast as others, a loss is soon noticed again.
        board.slow_s = 0.0
        for _ in range(500):
            port.read(0x000)
            if port._answered_s < 0.0025:
                break
        assert port._answered_s < 0.0025
