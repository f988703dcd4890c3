"""From a board's top to a bitstream: Yosys, nextpnr, and the packer, as they come from PyPI.

The placed design depends on neither a board's settings nor the build's time and commit, so it is
kept: in a folder, with the hash of everything that it was made of. Only a change of the sources, of
the board or of a tool makes it anew.

Tested: `tests/hdl/test_boards_flow.py`.
"""

import contextlib
import fcntl
import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from afflux_hdl.boards.board import Board
from afflux_hdl.boards.ecp5_top import TOP_MODULE, generate_top, pin_names, top_pins
from afflux_hdl.boards.figures import summary, use_by_part
from afflux_hdl.boards.key_file import write_private
from afflux_hdl.boards.placed_settings import PLACED, Contents, patched
from afflux_hdl.contract.management import Settings
from afflux_hdl.management.management import Management
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.synthesis.gateware import name_of
from afflux_hdl.synthesis.netlist import Netlist
from afflux_hdl.synthesis.tools import (
    Progress,
    ToolError,
    run_ecppack,
    run_ecpunpack,
    run_nextpnr,
    run_yosys,
    versions,
)

__all__ = [
    "MISSED_NAME",
    "Flow",
    "constraints",
    "script",
    "verilog_of",
]

ETHERNET_MHZ = 125

MISSED_NAME = "-missed"
"""Behind the board's name in the name of a bitstream that misses a clock."""

STYLES = {
    # In block RAM, so that it can be patched.
    "management.*settings": "block",
    "control.build": "block",
    # A board's engine clock leaves time for what `afflux_hdl.synthesis.ecp5` avoids: this wide
    # queue is in block RAM, and the LUTs are for logic.
    "operations.fifo.storage": "block",
    "counters.bank.shown": "distributed",
    "control.bank.shown": "distributed",
}
"""The kind of memories, where Yosys would choose otherwise."""

CELL_LIBRARY = "read_verilog -lib +/lattice/cells_sim_ecp5.v +/lattice/cells_bb_ecp5.v"
"""Yosys' description of the part's primitives, as `synth_ecp5` reads it."""

DELIVERIES = "delivery_queue.entries"
"""In block RAM, except with several ports, whose frames need the block RAMs."""

NEVER_BOTH = ("receive.summaries.fifo.storage", "operations.fifo.storage", DELIVERIES)
"""Queues in block RAM, of which no word counts that is read while it is written: no choice behind
them.

Amaranth's buffered FIFO reads a word only when its level, a register, counts it already. The
delivery queue writes in one phase, and takes what it has read in the other."""

ALIKE = "*/w:*.tx_crossing.fifo.rst_cdc.stage* %ci */t:$*dff* %i"
"""Registers of several ports that always hold the same.

Yosys would have one for all, at one port's pins; from there to another's is half a clock cycle."""


def verilog_of(board: Board, node: NodeParameters) -> str:
    """Return the Verilog that is placed: with what `PLACED` has for settings and build."""
    clock_hz = float(board.clock_mhz(node.engine.ports) * 1_000_000)
    management = Management(settings=PLACED.settings, clock_hz=clock_hz)
    build = {"build_time": PLACED.build_time, "build_commit": PLACED.build_commit}
    return generate_top(board, replace(node, engine=replace(node.engine, **build)), management)


def script(*, name: str = "board", ports: int = 1, only_check: bool = False) -> str:
    """Return the script for Yosys: `name`.v becomes `name`.json.

    Args:
        name: Of the files.
        ports: Network ports that the board uses.
        only_check: Stop before the synthesis, and count that: `name`_cells.json.
    """
    styles = {**STYLES, DELIVERIES: "distributed" if ports > 1 else "block"}
    # A name that is no longer that of a memory would be passed over without a word.
    marks = [
        *(f"select -assert-count 1 */m:*.{each}" for each in dict.fromkeys((*styles, *NEVER_BOTH))),
        *(f'setattr -set ram_style "{style}" */m:*.{each}' for each, style in styles.items()),
        *(f"setattr -set no_rw_check 1 */m:*.{each}" for each in NEVER_BOTH),
    ]
    if ports > 1:
        marks += [
            f"select -assert-min {2 * ports} {ALIKE}",
            f"setattr -set keep 1 {ALIKE}",
        ]
    begin = f"""
read_verilog {name}.v
hierarchy -top {TOP_MODULE}
proc
flatten
{chr(10).join(marks)}
"""
    if only_check:
        begin = begin.replace("hierarchy", f"{CELL_LIBRARY}\nhierarchy", 1)
        return f"{begin}check -assert\nopt_clean\ntee -q -o {name}_cells.json stat -json\n"
    return f"{begin}synth_ecp5 -top {TOP_MODULE}\nwrite_json {name}.json\n"


def constraints(board: Board, ports: int = 1) -> str:
    """Return the constraints for nextpnr: pins, their buffers, clocks that come in by pins."""
    lines = []
    for port, pins in top_pins(board, ports):
        for n, pin in enumerate(pins):
            name = port if len(pins) == 1 else f"{port}[{n}]"
            lines.append(f'LOCATE COMP "{name}" SITE "{pin.site}";')
            attributes = " ".join(f"{key}={value}" for key, value in pin.attributes)
            lines.append(f'IOBUF PORT "{name}" {attributes};')
    lines.append(f'FREQUENCY PORT "clock" {board.oscillator[1]} MHZ;')
    for clock in pin_names(["rx_clk"], range(ports)):
        lines.append(f'FREQUENCY PORT "rgmii_{clock}" {ETHERNET_MHZ} MHZ;')
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Flow:
    """The flow of one board in one folder.

    Attributes:
        board: The board.
        node: Sizes of the node, the board's own or others.
        folder: Where everything is; `work` below it has what is placed.
        progress: Called with each step that a tool comes to.
        limit_s: Seconds after which a placement or routing is given up.
    """

    board: Board
    node: NodeParameters
    folder: Path
    progress: Progress
    limit_s: float = 3600

    @property
    def work(self) -> Path:
        """Folder of what is kept."""
        return self.folder / "work"

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep others out of the folder meanwhile: they would place each other's netlists.

        Raises:
            ToolError: If another process has it.
        """
        self.work.mkdir(parents=True, exist_ok=True)
        # The kernel frees it, however this process ends.
        with (self.work / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ToolError(
                    f"another process makes a bitstream in {self.folder}: wait for its end, or "
                    "name another folder with --output"
                ) from None
            yield

    def synthesise(self) -> dict[str, Any]:
        """Make the netlist, if it is not there; return what is known of it.

        Raises:
            ToolError: If Yosys fails.
        """
        self.work.mkdir(parents=True, exist_ok=True)
        text = verilog_of(self.board, self.node)
        ports = self.node.engine.ports
        pins, yosys = constraints(self.board, ports), script(ports=ports)
        digest = hashlib.sha256(
            "\0".join(
                [text, yosys, pins, *self.board.arguments]
                + [f"{name} {version}" for name, version in versions().items()]
            ).encode()
        ).hexdigest()
        known = self.known()
        if known.get("sources") != digest:
            # First of all: a user that ends this run half-way, and goes back to the options of
            # before, must not find that said of files which are no longer of it.
            self._known_file.unlink(missing_ok=True)
            for old in self.work.glob("placed_*"):
                old.unlink()
            (self.work / "board.v").write_text(text)
            (self.work / "board.lpf").write_text(pins)
            started = time.monotonic()
            run_yosys(yosys, self.work, "board", self.progress)
            known = {
                "sources": digest,
                "synthesis_s": round(time.monotonic() - started, 1),
                "seeds": {},
            }
            self._keep(known)
        return known

    def place(self, seed: int) -> dict[str, Any]:
        """Place and route with a seed, if that is not done; return its report.

        Raises:
            ToolError: If nextpnr fails, for one because the part is too small, or takes too long.
        """
        known = self.known()
        if str(seed) not in known["seeds"]:
            name = f"placed_{seed}"
            started = time.monotonic()
            run_nextpnr(
                [
                    *self.board.arguments,
                    *("--json", "board.json", "--lpf", "board.lpf"),
                    *("--textcfg", f"{name}.config", "--report", f"{name}.json"),
                    # A clock that is missed is a figure, not a reason to have nothing.
                    *("--timing-allow-fail", "--seed", str(seed)),
                ],
                self.work,
                name,
                self.progress,
                self.limit_s,
            )
            report = json.loads((self.work / f"{name}.json").read_text())
            known["seeds"][str(seed)] = {
                "place_and_route_s": round(time.monotonic() - started, 1),
                **summary(report, self.node.engine.ports),
            }
            self._keep(known)
        found: dict[str, Any] = known["seeds"][str(seed)]
        return found

    def pack(self, seed: int, settings: Settings, name: str) -> tuple[Path, Path]:
        """Put settings and build into what is placed; return bitstream and SVF file, `name`.

        Those of an earlier run, by whatever name, are gone then: they are of something else.

        Both files have the key in them, and so mode 600. The bitstream is unpacked again, and must
        have both in it.

        Raises:
            ToolError: If packer or unpacker fails.
            ValueError: If the place of either is not found, or not in the bitstream.
        """
        engine = self.node.engine
        contents = Contents(
            settings=settings, build_time=engine.build_time, build_commit=engine.build_commit
        )
        placed = (self.work / f"placed_{seed}.config").read_text()
        for old in (self.board.name, self.board.name + MISSED_NAME):
            for suffix in ("bit", "svf", "json"):
                (self.folder / f"{old}.{suffix}").unlink(missing_ok=True)
        config, unpacked = self.work / "with_settings.config", self.work / "unpacked.config"
        write_private(config, patched(placed, contents).encode())
        write_private(unpacked, b"")
        try:
            for suffix in ("bit", "svf"):
                write_private(self.work / f"{name}.{suffix}", b"")
            arguments = ["--compress", "--input", config.name]
            files = ["--bit", f"{name}.bit", "--svf", f"{name}.svf"]
            run_ecppack([*arguments, *files], self.work, "pack", self.progress)
            arguments = ["--input", f"{name}.bit", "--textcfg", unpacked.name]
            run_ecpunpack(arguments, self.work, "unpack", self.progress)
            patched(unpacked.read_text(), PLACED, before=contents)
        finally:
            config.unlink()
            unpacked.unlink()
        done = []
        for suffix in ("bit", "svf"):
            path = self.folder / f"{name}.{suffix}"
            data = (self.work / f"{name}.{suffix}").read_bytes()
            (self.work / f"{name}.{suffix}").unlink()
            write_private(path, data)
            done.append(path)
        return done[0], done[1]

    def use_by_part(self) -> dict[str, dict[str, int]]:
        """Return LUT4, FF and EBR of the parts, by path; see `use_by_part`."""
        return use_by_part(Netlist.load(self.work / "board.json", TOP_MODULE))

    def placed_digest(self, seed: int) -> str:
        """Return the hash of what is placed with a seed, before a board's settings."""
        return hashlib.sha256((self.work / f"placed_{seed}.config").read_bytes()).hexdigest()

    def gateware(self) -> str:
        """Return the name of what was synthesised; see `afflux_hdl.synthesis.gateware`."""
        return name_of((self.work / "board.v").read_text())

    def known(self) -> dict[str, Any]:
        """Return what is kept: hash of the sources, time of the synthesis, reports of seeds."""
        path = self._known_file
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    @property
    def _known_file(self) -> Path:
        return self.work / "known.json"

    def _keep(self, known: Mapping[str, Any]) -> None:
        # A rename is atomic: of a run that was ended here there is no half of it.
        new = self.work / "known.new"
        new.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        new.replace(self._known_file)
