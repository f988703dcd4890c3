"""Two hosts with a cable each to the two ports of a simulated board sum there, without a switch.

The steps are those of `docs/boards.md`, "Two ports of a board". The hosts' other network, in which
ranks meet, does not lead to the board.
"""

import json
import secrets
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

import afflux
from afflux_hdl.contract.management import Settings
from afflux_sim.board.simulated_appliance import board_parameters
from afflux_sim.rtl.verilated_board import BoardClocks
from tests.support.host import serving
from tests.support.host.cabled_board import cabled
from tests.support.host.network import network
from tests.support.host.ranks import run_ranks, values

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(600)]

BOARD, CONTROLLER, OTHER = "10.78.0.9", "10.78.0.1", "10.78.0.12"
# Lanes and slots of the Colorlight's, whose engine does not take two full ports.
SIZES = {"workers": 4, "lanes": 4, "jobs": 1, "slots": 4}
COUNTS = (1, 64, 4 * 64 * 8 + 1, 20_000)


def reduce_all(rank, size):
    """Return the bits of each sum, and what the group says of itself."""
    results = []
    for count in COUNTS:
        generator = torch.Generator().manual_seed(100 * rank + count)
        tensor = torch.randint(-1000, 1000, (count,), generator=generator, dtype=torch.int32)
        dist.all_reduce(tensor)
        results.append(tensor.tolist())
    return results, afflux.statistics()["engine"]


def expected():
    sums = []
    for count in COUNTS:
        total = torch.zeros(count, dtype=torch.int32)
        for rank in range(2):
            generator = torch.Generator().manual_seed(100 * rank + count)
            total += torch.randint(-1000, 1000, (count,), generator=generator, dtype=torch.int32)
        sums.append(total.tolist())
    return sums


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_two_hosts_sum_without_a_switch_and_nothing_is_dropped(tmp_path):
    key, secret = tmp_path / "board.key", tmp_path / "afflux.secret"
    for path, octets in ((key, 16), (secret, 32)):
        path.write_text(f"{secrets.token_hex(octets)}\n")
        path.chmod(0o600)
    settings = Settings(
        mac=0x02_00_00_00_00_09,
        address=BOARD,
        controller=CONTROLLER,
        key=bytes.fromhex(key.read_text()),
        name="two ports",
    )
    with network(hosts=2) as made:
        first = made.hosts[0]
        with cabled(
            board_parameters(**SIZES, ports=2),
            settings,
            BoardClocks(seed=1),
            made.hosts,
            [f"{CONTROLLER}/24", f"{OTHER}/24"],
        ) as board:
            command = [sys.executable, "-m", "afflux.commands.cli", "serve", "device"]
            command += [f"udp://{BOARD}", "--key-file", str(key)]
            command += ["--host", first.address, "--secret-file", str(secret)]
            process = first.popen(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            try:
                line = process.stdout.readline()
                assert line.startswith(f"afflux: board engine on udp://{first.address}:4700"), (
                    process.stderr.read()
                )
                environment = {
                    "AFFLUX_AGGREGATOR": f"udp://{first.address}:4700",
                    "AFFLUX_SECRET_FILE": str(secret),
                }
                outcomes = values(
                    run_ranks(
                        reduce_all,
                        2,
                        hosts=made.hosts,
                        environment=environment,
                        timeout_s=120,
                        limit_s=180,
                    )
                )
            finally:
                process.terminate()
                assert serving.finish(process) == 0
            wanted = expected()
            for results, engine in outcomes:
                assert engine == "board"
                assert results == wanted
            shown = first.run(
                *(sys.executable, "-m", "afflux.commands.cli", "device", "counters"),
                *(f"udp://{BOARD}", "--key-file", str(key), "--json", "--all"),
            )
            assert shown.returncode == 0, shown.stderr
            counted = json.loads(shown.stdout)
            print(counted)
            assert counted["port_rx_dropped"] == counted["port_tx_cut"] == 0
            assert board.statistics().overflowed == 0
