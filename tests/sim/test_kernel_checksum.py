"""A kernel's view of seals: it gives a result of the gateware to its socket, and no spoiled one."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from afflux_hdl.contract.registers import Command, address_of
from afflux_sim.board.tap import Tap
from afflux_sim.golden.frames import Endpoint
from afflux_sim.golden.worker import GoldenWorker
from tests.checks.engine_checks import BUILDS, open_engine
from tests.scenarios.director import Director
from tests.scenarios.job_frames import ENGINE_MAC, Job
from tests.scenarios.performer import perform

BUS_BITS = 512
NAME = f"seal{os.getpid() % 10**6}"
KERNEL, ENGINE = "198.18.77.1", "198.18.77.2"


@contextmanager
def tapped() -> Iterator[tuple[Tap, bytes]]:
    """Yield an interface with the kernel's address, and its MAC address."""
    try:
        tap = Tap(NAME)
    except OSError as error:
        pytest.skip(str(error))
    try:
        for command in (f"address add {KERNEL}/30 dev {NAME}", f"link set {NAME} up"):
            subprocess.run(["ip", *command.split()], check=True)
        text = Path(f"/sys/class/net/{NAME}/address").read_text(encoding="ascii")
        yield tap, bytes.fromhex(text.strip().replace(":", ""))
    finally:
        tap.close()


def checksum_errors() -> int:
    """Return how many UDP datagrams the kernel has dropped for their checksum."""
    lines = Path("/proc/net/snmp").read_text(encoding="ascii").splitlines()
    names, numbers = (line.split() for line in lines if line.startswith("Udp:"))
    return int(numbers[names.index("InCsumErrors")])


def results_for(kernel: Endpoint) -> list[bytes]:
    """Return what the gateware sends to the only worker of a job, which is at `kernel`."""
    job = Job(workers=1, lanes=5, slots=1)
    director = Director(**BUILDS[BUS_BITS], address=ENGINE)
    worker = GoldenWorker(
        endpoint=kernel,
        engine=Endpoint(bytes.fromhex(ENGINE_MAC.replace(":", "")), ENGINE, 4700),
        job=job.number,
        key=job.key,
        round=job.first_round,
        worker=0,
        workers=1,
        lanes=job.lanes,
        slots=1,
    )
    with open_engine(BUS_BITS) as engine:
        perform(engine, director.configure())
        for name, value in job.registers().items():
            engine.write(address_of(name), value)
        engine.write(address_of("job_command"), Command.CREATE)
        engine.run(1000)
        sent = engine.play([worker.join()])
        worker.start(np.arange(2000, dtype=np.int32), "int32", "sum")
        while frames := worker.frames_to_send():
            answers = engine.play(frames)
            for answer in answers:
                worker.receive(answer)
            sent += answers
        assert worker.result().tolist() == list(range(2000))
    return sent


def test_a_kernel_takes_what_is_right_and_drops_what_is_spoiled() -> None:
    with tapped() as (tap, mac), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind((KERNEL, 0))
        udp.settimeout(5)
        frames = results_for(Endpoint(mac, KERNEL, udp.getsockname()[1]))
        assert len(frames) > 5
        before = checksum_errors()
        for frame in frames:
            # As the engine spoils them: a bit of the complement.
            tap.send([frame[:-2] + bytes([frame[-2], frame[-1] ^ 1]), frame])
            assert udp.recv(10_000) == frame[42:]
        assert checksum_errors() == before + len(frames)
