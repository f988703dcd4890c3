"""The whole appliance behind a MAC on its pins: all that it is told comes in packets over its port.

Run by test_cocotb_port.py; not collected by pytest itself.
"""

import random
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from afflux_drivers.device.management_message import Answer, Request
from afflux_hdl.contract.management import (
    PORT,
    RESET_WORD,
    MessageType,
    Settings,
    Status,
    management_address_of,
)
from afflux_hdl.contract.registers import PORT_IDENTITY, node_counter_address, port_address_of
from tests.scenarios.afflux_layer import ENGINE_PORT
from tests.scenarios.director import Actions, Director
from tests.scenarios.job_frames import ENGINE_ADDRESS, ENGINE_MAC, Job
from tests.scenarios.node_frames import arp_reply, arp_request
from tests.testbench.port import NODE_PS, SIZES, rounds
from tests.testbench.port_testbench import MAC_25G, PortTestbench

CONTROLLER, CONTROLLER_MAC = "10.0.0.200", "02:00:0c:00:00:c8"

SETTINGS = Settings(
    mac=int(ENGINE_MAC.replace(":", ""), 16),
    address=ENGINE_ADDRESS,
    controller=CONTROLLER,
    key=bytes(range(100, 116)),
    engine_port=ENGINE_PORT,
    name="under test",
)


class ManagedTestbench(PortTestbench):
    """A controller beside the workers: registers are read and written by its packets.

    Args:
        dut: The appliance.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, MAC_25G, node_ps=NODE_PS[MAC_25G.bits])
        self._session = self._sequence = 0
        self._board = bytes(map(int, ENGINE_ADDRESS.split(".")))

    def host_side(self) -> None:
        """There is no host."""
        self.dut.entropy.value = 0

    async def noise(self) -> None:
        """Be the entropy source."""
        choose, edge = random.Random(9), FallingEdge(self.dut.clk)
        while True:
            self.dut.entropy.value = choose.getrandbits(1)
            await edge

    async def begin(self) -> None:
        """Start all, and open the session."""
        cocotb.start_soon(self.noise())
        await self.start()
        await self.until_configured()
        await self.hello()

    async def until_configured(self, *, configured: bool = True) -> None:
        """Wait until the board has its address, or has it no more."""
        for _ in range(40_000):
            await FallingEdge(self.dut.clk)
            if bool(self.dut.configured.value) == configured:
                return
        raise AssertionError("the board's address does not change")

    async def hello(self) -> None:
        """Ask for the session; the board may still be drawing it."""
        for attempt in range(40):
            request = Request.hello(attempt + 1)
            answer = await self._exchange(request, waits=4000)
            if answer is not None:
                self._session, self._sequence = answer.session, answer.sequence
                return
        raise AssertionError("nobody answers")

    async def read(self, address: int) -> int:
        return (await self._access(MessageType.READ, address, 0)).value

    async def write(self, address: int, value: int) -> None:
        await self._access(MessageType.WRITE, address, value)

    async def _access(self, kind: MessageType, address: int, value: int) -> Answer:
        self._sequence += 1
        request = Request.access(
            *(SETTINGS.key, kind),
            session=self._session,
            sequence=self._sequence,
            address=address,
            value=value,
            board=self._board,
        )
        answer = await self._exchange(request, waits=8000)
        assert answer is not None, f"no answer to {kind.name} of {address:#x}"
        assert (answer.status, answer.sequence) == (Status.DONE, self._sequence)
        return answer

    async def _exchange(self, request: Request, waits: int) -> Answer | None:
        headers = Ether(src=CONTROLLER_MAC, dst=ENGINE_MAC) / IP(src=CONTROLLER, dst=ENGINE_ADDRESS)
        frame = bytes(headers / UDP(sport=5000, dport=PORT) / Raw(request.payload))
        await self.mac.receive([frame])
        for _ in range(waits):
            await FallingEdge(self.dut.clk)
            if self.mac.sent:
                break
        else:
            return None
        (got,) = self.mac.take()
        packet = Ether(got)
        assert (packet.dst, packet[IP].dst, packet[UDP].dport) == (CONTROLLER_MAC, CONTROLLER, 5000)
        answer = Answer.read(SETTINGS.key, request, bytes(packet[UDP].payload)[:42])
        assert answer is not None, "an answer under another key"
        assert answer.board == self._board
        return answer


@cocotb.test()
async def a_job_from_the_first_packet_on(dut: Any) -> None:
    """Address, session, job, rounds at the wire's rate, and a reset that the controller orders."""
    testbench = ManagedTestbench(dut)
    await testbench.begin()
    # The node answers for the address that the settings have.
    await testbench.mac.receive([arp_request()])
    await testbench.settle()
    assert testbench.mac.take() == [arp_reply(arp_request())]

    director = Director(**SIZES)
    job = Job(number=1, workers=4, lanes=2, slots=8)

    def scenario() -> Actions[None]:
        yield from director.create(job)
        yield from rounds(director, job, random.Random(1), 4)

    await testbench.perform(scenario())
    assert director.left_out == 0
    sent = await testbench.read(node_counter_address("network_frames_out"))
    assert sent > 4 * 8 * job.workers

    session = testbench._session
    await testbench.write(management_address_of("board_reset"), RESET_WORD)
    # The answer has time to leave.
    await testbench.until_configured(configured=False)
    await testbench.until_configured()
    await testbench.hello()
    assert testbench._session != session
    # That of the session is the first frame that the node has sent since.
    assert await testbench.read(node_counter_address("network_frames_out")) == 1
    assert not dut.fault.value
    assert await testbench.read(port_address_of("port_identity")) == PORT_IDENTITY
    assert int(dut.rx_dropped.value) == int(dut.tx_cut.value) == 0
