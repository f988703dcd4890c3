"""The list of all rooms and modules in `docs/modules.md`.

`python -m docs.generate.rooms docs/modules.md` writes the text between
`<!-- rooms: NAME -->` and `<!-- end -->`, from the docstrings of the packages and modules, and from
the first comments of the C++ files. A test compares.
"""

import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

from docs.generate.source_tree import NATIVE, PACKAGES, Module, native_modules, python_modules

__all__ = ["render"]

_NATIVE_ROOMS = {
    "aggregator": "The software engine on UDP sockets, C++ from socket to socket.",
    "arithmetic": "Element types, vectors and instruction sets; reductions that need no care.",
    "arithmetic/kernels": "Its loops, which the sums' kernels compile for each instruction set.",
    "bindings": "Binds the libraries to Python; the only folder that knows of it.",
    "c_api": "Collectives for another library of the process, behind plain C types.",
    "carriers": "The carriers of streams between ranks: TCP connections, or UCX.",
    "collectives": "Requests, reductions and terms of a group, whatever its ranks have in common.",
    "contract": "The contract in C++, generated.",
    "control": "The control channel's client: jobs at aggregators, and their leases.",
    "costs": "The cost of each stage of the data path alone, for forecasts and benchmarks.",
    "datagrams": "UDP sockets, many datagrams to a call, joined and cut apart by the kernel.",
    "engine": "The software engine: the aggregator's state machine on the CPU.",
    "hosts": "All-reduces of hosts with several ranks: memory within, streams between.",
    "narrow": "Elements in fewer bits: integers of which a word has several, and halves.",
    "nccl": "NCCL's plugin: all-reduces of GPU programs through an aggregator.",
    "packet": "Headers and buffers of packets.",
    "registers": "Single 32-bit accesses to registers that are mapped.",
    "rows": "Rows of sparse tensors: lists of them, the union of several, and their blocks.",
    "selection": "Which elements of a tensor are the largest.",
    "shared": "Collectives of the ranks of one host, through memory that they share.",
    "streams": "Collectives of ranks that have a stream to each other.",
    "sums": "Correctly rounded sums of floats, of arrays and of blocks that come one at a time.",
    "sums/kernels": "The inner loops of sums, compiled once for each instruction set.",
    "tests": "Programs that test the C++, also under sanitizers, and one that times it.",
    "worker": "The worker: operations, slots, timers and sockets.",
}
"""The content of the folders of drivers/native."""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _python_rooms(package: str) -> str:
    modules = python_modules()
    rooms: dict[str, list[Module]] = {}
    for module in modules.values():
        if module.name.partition(".")[0] == package and not _is_test(module):
            rooms.setdefault(_folder(module), []).append(module)
    return "\n\n".join(_room(folder, rooms[folder], modules) for folder in sorted(rooms))


def _folder(module: Module) -> str:
    return module.path.parent.as_posix()


def _is_test(module: Module) -> bool:
    return module.path.name.startswith(("test_", "conftest"))


def _room(folder: str, members: Iterable[Module], modules: dict[str, Module]) -> str:
    package = [each for each in members if each.path.name == "__init__.py"]
    title = _title(folder, package[0].about if package else "")
    lines = [title, "", "| module | what it holds |", "|---|---|"]
    lines += [
        f"| `{each.path.name}` | {_cell(each.about)} |"
        for each in sorted(members, key=lambda each: each.path)
        if each.path.name != "__init__.py"
    ]
    return "\n".join(lines if len(lines) > 4 else lines[:1])


def _title(folder: str, about: str) -> str:
    text = f"**`{folder}`**: {about}" if about else f"**`{folder}`**"
    return textwrap.fill(text, 120, break_on_hyphens=False)


def _native_rooms() -> str:
    rooms: dict[str, list[Module]] = {}
    for module in native_modules().values():
        rooms.setdefault(_folder(module), []).append(module)
    texts = []
    for folder, members in sorted(rooms.items()):
        headers = {each.path.stem for each in members if each.path.suffix == ".hpp"}
        about = _NATIVE_ROOMS[folder.removeprefix("drivers/native/")]
        lines = [_title(folder, about), "", "| files | what they hold |", "|---|---|"]
        for each in sorted(members, key=lambda each: each.path):
            if each.path.suffix == ".cpp" and each.path.stem in headers:
                continue
            source = each.path.with_suffix(".cpp")
            pair = each.path.suffix == ".hpp" and any(source == other.path for other in members)
            name = f"{each.path.name}`, `{source.name}" if pair else each.path.name
            lines.append(f"| `{name}` | {_cell(each.about)} |")
        texts.append("\n".join(lines))
    return "\n\n".join(texts)


def render(text: str) -> str:
    """Return `text` with every list of rooms renewed. Raise `KeyError` for an unknown name."""

    def section(match: re.Match[str]) -> str:
        name = match[1]
        if name != NATIVE and name not in PACKAGES:
            raise KeyError(name)
        body = _native_rooms() if name == NATIVE else _python_rooms(name)
        return f"<!-- rooms: {name} -->\n{body}\n<!-- end -->"

    return re.sub(r"<!-- rooms: (\w+) -->\n.*?<!-- end -->", section, text, flags=re.DOTALL)


def main() -> None:
    """Rewrite the document that the first argument names."""
    path = Path(sys.argv[1])
    path.write_text(render(path.read_text()))


if __name__ == "__main__":
    main()
