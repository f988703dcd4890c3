"""Carries out a bounded proof: harness to AIGER with yosys, cycle by cycle to a SAT solver.

`sby.py` takes the proofs by induction. This one differs: the memories' first content may be
anything, as registers' is after a reset only.
"""

import re
import subprocess
import time
from pathlib import Path

from tests.formal.contracts import OWN_OF_FIFO
from tests.formal.unrolling import TRUE, Aig, Unrolling

__all__ = ["Found", "search", "with_any_memories"]

Found = tuple[str, int | None, tuple[str, ...], str]
"""Status, the cycle of the first violation, properties that are violated or not reached, log."""

# Cheap operations on words are done on words; gates are simplified while they are copied.
SCRIPT = """
read_rtlil design.il
hierarchy -top top
proc
flatten
chformal -lower
delete t:$cover
opt_clean -purge
opt_expr
opt_merge
opt_muxtree
wreduce
memory_map
opt_expr
opt_clean -purge
opt_merge
opt_clean -purge
dffunmap
simplemap
techmap
simplemap
setundef -zero -undriven
aigmap
tee -q -o properties.il dump t:$assert
write_aiger design.aig
"""

Target = tuple[int, int, int]
"""A literal that is sought, its cycle, and the number of its property."""

TOGETHER = 4
"""Cycles that are looked at together."""


def with_any_memories(netlist: str) -> str:
    """Return a netlist whose memories hold anything at the start.

    Those of queues hold zeros. It makes no difference: each word that comes out of them has been
    written before (proofs `queue` and `rings of the delivery queue`).
    """
    initial = re.compile(r"(?m)^  cell \$meminit\w* .*\n(?:.*\n)*?  end\n")
    parts = []
    for part in re.split(r"(?m)^(?=attribute .*\nmodule |module )", netlist):
        name = re.search(r"(?m)^module (\S+)", part)
        whose = name[1] if name else ""
        if whose.endswith(".delivery_queue"):
            parts.append(initial.sub(lambda cell: cell[0] * ('\\entries"' in cell[0]), part))
        else:
            parts.append(part if ".fifo" in whose else initial.sub("", part))
    return "".join(parts)


def without_checks_of_queues(netlist: str) -> str:
    """Return a netlist without what Amaranth's queues state about themselves."""
    place = rf'  attribute \\src "[^"]*{OWN_OF_FIFO}[^"]*"\n'
    check = rf"(?m)^{place}  cell \$check .*\n(?:.*\n)*?  end\n"
    return re.sub(check, "", netlist)


def search(
    folder: Path, netlist: str, depth: int, yosys: Path, *, cover: bool, limit_s: int
) -> Found:
    """Look for a violation within so many cycles, or for a run to each cover statement."""
    text = without_checks_of_queues(netlist)
    if cover:
        # AIGER knows no cover statements: an assertion of the same is searched for being true.
        for old, new in (("assert", "none"), ("cover", "assert"), ("none", "cover")):
            text = text.replace(f'parameter \\FLAVOR "{old}"', f'parameter \\FLAVOR "{new}"')
    (folder / "design.il").write_text(text)
    (folder / "run.ys").write_text(SCRIPT)
    start = time.monotonic()
    made = subprocess.run(
        [str(yosys), "-q", "-s", "run.ys"], cwd=folder, capture_output=True, text=True, check=False
    )
    if made.returncode:
        return "ERROR", None, (), made.stderr
    # yosys writes the properties in reverse.
    places = re.findall(r'attribute \\src "([^"|]*)', (folder / "properties.il").read_text())[::-1]
    unrolling = Unrolling(Aig.read(folder / "design.aig"))
    log: list[str] = []
    missing = set(range(len(places)))
    waiting: list[Target] = []
    last = 0
    for cycle in range(depth):
        for number, literal in enumerate(unrolling.step()):
            sought = -literal if cover else literal
            if sought != -TRUE and number in missing:
                waiting.append((sought, cycle, number))
        if cycle % TOGETHER < TOGETHER - 1 and cycle < depth - 1:
            continue
        while waiting:
            reached = set(unrolling.reached([literal for literal, _, _ in waiting]))
            seconds = time.monotonic() - start
            found = [(at, number) for literal, at, number in waiting if literal in reached]
            log.append(f"{seconds:.0f} s, cycle {cycle}, {unrolling.variables} variables: {found}")
            (folder / "log.txt").write_text("\n".join(log) + "\n")
            if found and not cover:
                first, number = min(found)
                return "FAIL", first, (places[number],), "\n".join(log)
            if seconds > limit_s:
                return "TIMEOUT", cycle, (), "\n".join(log)
            last = max((last, *(at for at, _ in found)))
            missing -= {number for _, number in found}
            waiting = [one for one in waiting if one[2] in missing] if found else []
        if not missing:
            return "PASS", last, (), "\n".join(log)
    if cover:
        return "FAIL", None, tuple(places[number] for number in missing), "\n".join(log)
    return "PASS", None, (), "\n".join(log)
