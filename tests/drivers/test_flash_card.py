"""A card off the bus: every byte that is written to the port above, in which order, and back."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from afflux_drivers.device.errors import DeviceFailed
from afflux_drivers.flash import card as card_module
from afflux_drivers.flash.card import off_the_bus
from afflux_drivers.flash.errors import FlashFailed, FlashRefused
from afflux_drivers.flash.interruption import Ended, Signals
from afflux_drivers.flash.runner import Runner
from tests.support.checkout import ROOT
from tests.support.drivers.fake_pci import BRIDGE, CARD, FakePci

SECOND = CARD.replace(".0", ".1")


class Recorder(Runner):
    """Keeps the output, and the port's registers at each step."""

    def __init__(self, pci, dry=False):
        self.lines: list[str] = []
        super().__init__(dry=dry, say=self.lines.append)
        self.pci = pci

    def steps(self):
        return [line.removeprefix("+ ").replace(f"{self.pci.root}/", "") for line in self.lines]


@pytest.fixture
def pci(tmp_path):
    pci = FakePci(tmp_path / "sys")
    pci.add_function(SECOND)
    return pci


def devices(name):
    return f"bus/pci/devices/{name}"


MASK = [
    f"config {BRIDGE} command (0x04): 0x0447",
    f"config {BRIDGE} device control (0x68): 0x294b",
    f"echo 1 > {devices(CARD)}/remove",
    f"echo 1 > {devices(SECOND)}/remove",
]
RESTORE = [
    f"echo 1 > {devices(BRIDGE)}/rescan",
    f"config {BRIDGE} device control (0x68): 0x294f",
    f"config {BRIDGE} command (0x04): 0x0547",
]


def test_masks_removes_rescans_and_restores_in_this_order(pci):
    before, card_before = pci.config(BRIDGE), pci.config(CARD)
    recorder = Recorder(pci)
    with off_the_bus(CARD, sysfs=pci.root, runner=recorder):
        assert recorder.steps() == MASK
        during = pci.config(BRIDGE)
        # SERR# of the command register, fatal errors of the device control register; no other bit.
        pairs = enumerate(zip(before, during, strict=True))
        changed = {at: (a, b) for at, (a, b) in pairs if a != b}
        assert changed == {0x05: (0x05, 0x04), 0x68: (0x4F, 0x4B)}
        for name in (CARD, SECOND):
            assert (pci.folder(name) / "remove").read_text() == "1"
        assert (pci.folder(BRIDGE) / "rescan").read_text() == ""
    assert recorder.steps() == MASK + RESTORE
    assert pci.config(BRIDGE) == before
    assert pci.config(CARD) == card_before
    assert (pci.folder(BRIDGE) / "rescan").read_text() == "1"
    assert (pci.folder(BRIDGE) / "remove").read_text() == ""


@pytest.mark.parametrize("error", [RuntimeError("no cable"), KeyboardInterrupt(), SystemExit(3)])
def test_a_failure_restores_all(pci, error):
    before = pci.config(BRIDGE)
    recorder = Recorder(pci)
    with (
        pytest.raises(type(error)),
        off_the_bus(CARD, sysfs=pci.root, runner=recorder),
    ):
        raise error
    assert recorder.steps() == MASK + RESTORE
    assert pci.config(BRIDGE) == before


def test_a_failure_to_remove_restores_all(pci):
    before = pci.config(BRIDGE)
    (pci.folder(CARD) / "remove").unlink()
    recorder = Recorder(pci)
    with (
        pytest.raises(FlashFailed, match=r"cannot write to .*/remove: No such file"),
        off_the_bus(CARD, sysfs=pci.root, runner=recorder),
    ):
        raise AssertionError("the card was loaded although the host holds it")
    assert recorder.steps() == MASK[:3] + RESTORE
    assert pci.config(BRIDGE) == before


def test_a_failure_to_rescan_restores_the_registers_all_the_same(pci):
    before = pci.config(BRIDGE)
    (pci.folder(BRIDGE) / "rescan").unlink()
    with (
        pytest.raises(FlashFailed, match="rescan"),
        off_the_bus(CARD, sysfs=pci.root, runner=Recorder(pci)),
    ):
        pass
    assert pci.config(BRIDGE) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT])
def test_signals_restore_all_and_count_afterwards(pci, number):
    before = pci.config(BRIDGE)
    program = textwrap.dedent(f"""
        import resource, signal, time
        from pathlib import Path
        from afflux_drivers.flash.card import off_the_bus
        from afflux_drivers.flash.runner import Runner
        # Ignored where the tests run in the background of a shell, or below nohup.
        signal.signal({number:d}, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # SIGQUIT leaves one.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with off_the_bus("{CARD}", sysfs=Path("{pci.root}"), runner=Runner()):
            print("off", flush=True)
            time.sleep(60)
        print("never")
    """)
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=ROOT,
    )  # fmt: skip
    lines = []
    while "off" not in lines:
        lines.append(child.stdout.readline().strip())
        assert lines[-1], lines
    assert pci.config(BRIDGE) != before
    for _ in range(5):
        child.send_signal(number)
    out, err = child.communicate(timeout=30)
    assert "never" not in out
    assert pci.config(BRIDGE) == before
    assert (pci.folder(BRIDGE) / "rescan").read_text() == "1"
    # It ends as it would have without us: by the signal, or by KeyboardInterrupt.
    assert child.returncode == (-number if number != signal.SIGINT else -signal.SIGINT), err
    assert ("KeyboardInterrupt" in err) is (number == signal.SIGINT)


def test_signals_raise_once_and_never_while_things_are_restored():
    got = []
    reached = []
    old = signal.signal(signal.SIGTERM, lambda number, _: got.append(number))
    try:
        with pytest.raises(FlashFailed, match="ended by signal 15"), Signals() as signals:
            signal.raise_signal(signal.SIGTERM)
            reached.append("nothing was there to be restored yet")
            with pytest.raises(Ended):
                signals.allow()
            signal.raise_signal(signal.SIGTERM)
            signals.hold()
            signal.raise_signal(signal.SIGTERM)
            reached.append("one has been raised, so no more")
            assert got == []
            raise Ended(15)
        assert (len(got), len(reached)) == (1, 2)
        with pytest.raises(FlashFailed), Signals() as signals:
            signals.allow()
            with pytest.raises(Ended):
                signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            reached.append("one has been raised, so no more")
            raise Ended(15)
        assert (len(got), len(reached)) == (2, 3)
        with Signals() as signals:
            signals.allow()
            signals.hold()
            signal.raise_signal(signal.SIGTERM)
            reached.append("it came while things were restored")
        assert (len(got), len(reached)) == (3, 4)
    finally:
        signal.signal(signal.SIGTERM, old)


def test_a_storm_of_signals_does_not_get_between(pci):
    """Signals at any time, also while things are restored: they are, each time."""
    before = pci.config(BRIDGE)
    got = []
    old = signal.signal(signal.SIGTERM, lambda *_: got.append(1))
    try:
        for pause_us in range(0, 3000, 100):
            pid = os.fork()
            if pid == 0:
                time.sleep(pause_us * 1e-6)
                for _ in range(20):
                    os.kill(os.getppid(), signal.SIGTERM)
                os._exit(0)
            try:
                with off_the_bus(CARD, sysfs=pci.root, runner=Recorder(pci)):
                    time.sleep(0.001)
            except FlashFailed as error:
                assert "ended by signal" in str(error)
            os.waitpid(pid, 0)
            assert pci.config(BRIDGE) == before
            assert (pci.folder(BRIDGE) / "rescan").read_text() == "1"
    finally:
        signal.signal(signal.SIGTERM, old)
    assert got


def test_a_dry_run_shows_all_and_writes_nothing(pci):
    everything = {path: path.read_bytes() for path in pci.root.rglob("*") if path.is_file()}
    recorder = Recorder(pci, dry=True)
    with off_the_bus(CARD, sysfs=pci.root, runner=recorder):
        pass
    assert recorder.steps() == MASK + RESTORE
    assert {path: path.read_bytes() for path in everything} == everything


def test_a_card_that_does_not_come_back(pci, monkeypatch):
    monkeypatch.setattr(card_module, "_BACK_AFTER_S", 0.2)
    before = pci.config(BRIDGE)
    with (
        pytest.raises(FlashFailed, match=rf"{CARD} has not come back within 0.2 s.*Reboot warm"),
        off_the_bus(CARD, sysfs=pci.root, runner=Recorder(pci)),
    ):
        pci.folder(CARD).unlink()
    assert pci.config(BRIDGE) == before


def test_a_card_whose_design_has_no_pcie_need_not_come_back(pci):
    before = pci.config(BRIDGE)
    with off_the_bus(CARD, comes_back=False, sysfs=pci.root, runner=Recorder(pci)):
        pci.folder(CARD).unlink()
    assert pci.config(BRIDGE) == before


def test_memory_of_a_card_that_is_back_is_enabled(pci):
    recorder = Recorder(pci)
    with off_the_bus(CARD, sysfs=pci.root, runner=recorder):
        pci.set_config(CARD, 4, b"\x40\x05")
    assert recorder.steps()[-1] == f"echo 1 > {devices(CARD)}/enable"
    assert (pci.folder(CARD) / "enable").read_text() == "1"


def test_a_card_that_there_is_not(pci):
    with (
        pytest.raises(FlashRefused, match=r"no PCIe function 0000:99:00\.0.*--no-card"),
        off_the_bus("0000:99:00.0", sysfs=pci.root, runner=Recorder(pci)),
    ):
        pass


def test_a_port_that_a_killed_load_has_left_masked_is_noticed(pci):
    """Nothing else knows what it had: the load goes on, and says what is wrong."""
    recorder = Recorder(pci)
    with off_the_bus(CARD, sysfs=pci.root, runner=recorder):
        left = pci.config(BRIDGE)
    assert not any("as it is" in line for line in recorder.lines)
    pci.set_config(BRIDGE, 0, left)
    recorder = Recorder(pci)
    with off_the_bus(CARD, sysfs=pci.root, runner=recorder):
        pass
    assert f"({BRIDGE} above the card reports no fatal errors as it is" in recorder.lines[0]
    assert pci.config(BRIDGE) == left


def test_what_has_no_port_above_is_left_alone(pci):
    with (
        pytest.raises(FlashRefused, match="no port above"),
        off_the_bus(BRIDGE, sysfs=pci.root, runner=Recorder(pci)),
    ):
        pass


@pytest.mark.parametrize(
    ("offset", "value"),
    [(0x06, b"\0\0"), (0x60, b"\x05\x40"), (0x41, b"\x40"), (0x34, b"\0")],
    ids=["no list", "another kind, and a circle", "a circle", "empty"],
)
def test_a_port_without_its_capability_is_left_alone(pci, offset, value):
    pci.set_config(BRIDGE, offset, value)
    before = pci.config(BRIDGE)
    recorder = Recorder(pci)
    with (
        pytest.raises(FlashRefused, match="no PCI Express capability"),
        off_the_bus(CARD, sysfs=pci.root, runner=recorder),
    ):
        pass
    assert recorder.lines == []
    assert pci.config(BRIDGE) == before


def test_who_sees_only_a_part_of_the_registers_is_told(pci):
    config = pci.folder(BRIDGE) / "config"
    config.write_bytes(config.read_bytes()[:64])
    with (
        pytest.raises(DeviceFailed, match="only root sees all of it"),
        off_the_bus(CARD, sysfs=pci.root, runner=Recorder(pci)),
    ):
        pass


def test_other_cards_are_left_alone(pci):
    other = "0000:3c:00.0"
    pci.add_function(other)
    with off_the_bus(CARD, sysfs=pci.root, runner=Recorder(pci)):
        pass
    assert (pci.folder(other) / "remove").read_text() == ""
    shutil.rmtree(pci.root)
