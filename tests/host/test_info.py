"""`afflux info`: what it reads is what the kernel says, and its advice fits."""

import json
import os
import resource
import socket
import subprocess
import sys
from subprocess import PIPE

import pytest

from afflux.commands import cli
from afflux.commands.info import carrier, interfaces, limits, sharing
from afflux.commands.info.advice import advice
from afflux.commands.info.aggregators import ask
from afflux.commands.info.command import collect
from afflux.commands.info.offloads import read_offloads
from afflux.commands.info.text import render
from afflux.group.settings.aggregator_url import AggregatorUrl
from afflux.group.settings.carrier import Lacks
from tests.support.host.aggregators import aggregator, answering, closed_port

MIB = 1 << 20


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(f"{text}\n", encoding="ascii")


def test_the_report_is_json_and_text(capsys, monkeypatch):
    monkeypatch.setenv("AFFLUX_AGGREGATOR", "soft://")
    assert cli.main(["info", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["cores"]["affinity"] == len(os.sched_getaffinity(0))
    assert report["sums"]["instruction_set"] in report["sums"]["instruction_sets"]
    assert report["aggregators"] == []
    assert report["memory"]["available"] <= report["memory"]["machine"]
    names = {each["name"]: each for each in report["interfaces"]}
    assert names["lo"]["loopback"]
    assert set(names) == {name for _, name in socket.if_nameindex()}
    assert cli.main(["info"]) == 0
    text = capsys.readouterr().out
    for word in ("afflux", "carrier", "cores", "memory", "UDP buffers", "MTU", "sums"):
        assert word in text


@pytest.mark.parametrize(
    ("asked", "lacking", "devices", "line"),
    [
        ("tcp", Lacks(), [], "tcp"),
        ("tcp", Lacks(), ["mlx5_0"], "tcp; RDMA devices mlx5_0"),
        ("auto", Lacks("no UCX", "no device"), [], "auto: tcp, as no device"),
        ("auto", Lacks(), ["mlx5_0", "mlx5_1"],
         "auto: ucx if all hosts can; RDMA devices mlx5_0, mlx5_1"),
        ("ucx", Lacks("", "no device"), [], "ucx"),
        ("ucx", Lacks("no UCX", "no UCX"), [], "ucx, which this host cannot use: no UCX"),
    ],
)  # fmt: skip
def test_the_carrier(monkeypatch, asked, lacking, devices, line):
    monkeypatch.setenv("AFFLUX_CARRIER", asked)
    monkeypatch.setattr(carrier, "lacks", lambda settings: lacking)
    monkeypatch.setattr(carrier, "rdma_devices", lambda: devices)
    lines = render(collect([], 1.0)).split("\n")
    assert f"carrier         {line}" in lines


def test_a_bad_setting_is_an_error_not_a_traceback(capsys, monkeypatch):
    monkeypatch.setenv("AFFLUX_SLOTS", "many")
    assert cli.main(["info"]) == 1
    assert "AFFLUX_SLOTS" in capsys.readouterr().err


def test_a_reader_that_wants_no_more_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "afflux", "info"], check=False, stdout=writer, stderr=PIPE
        )
    finally:
        os.close(writer)
    assert ended.returncode == 1
    assert ended.stderr == b""


# Aggregators.


def test_an_aggregator_is_asked(capsys):
    with aggregator(workers=5) as url:
        assert cli.main(["info", url]) == 0
        text = capsys.readouterr().out
        found = ask(url, 5.0)
    assert f"{url}: soft" in text
    assert found["workers"] == 5
    assert found["from_address"] == "127.0.0.1"
    assert found["lanes_on_the_way"] == 16
    assert 0 < found["answer_s"] < 5


def test_that_of_the_environment_is_asked_too(monkeypatch):
    with aggregator() as url:
        monkeypatch.setenv("AFFLUX_AGGREGATOR", url)
        found = collect([url], 5.0)["aggregators"]
    assert [each["url"] for each in found] == [url]
    assert "error" not in found[0]


def test_one_that_does_not_answer_is_an_error(capsys):
    url = f"udp://127.0.0.1:{closed_port()}"
    assert cli.main(["info", "--timeout", "1", url]) == 1
    text = capsys.readouterr().out
    assert "cannot reach the control channel" in text
    assert f"{url} does not answer" in text
    with answering({"ok": False, "error": "not today"}) as url:
        assert "not today" in ask(url, 5.0)["error"]
    assert "no running aggregator to ask" in ask("soft://", 1.0)["error"]
    assert "unknown scheme" in ask("tcp://host", 1.0)["error"]


# Limits, from the files of made-up machines.


def test_control_groups_of_version_2(tmp_path):
    write(tmp_path, "proc/self/cgroup", "0::/jobs/one")
    write(tmp_path, "sys/fs/cgroup/jobs/cpu.max", "150000 100000")
    write(tmp_path, "sys/fs/cgroup/jobs/one/cpu.max", "max 100000")
    write(tmp_path, "sys/fs/cgroup/jobs/memory.max", "max")
    write(tmp_path, "sys/fs/cgroup/jobs/one/memory.max", str(512 * MIB))
    cores = limits.read_cores(tmp_path)
    assert cores.quota == 1.5
    assert cores.usable == min(1.5, cores.affinity)
    assert limits.read_memory(tmp_path).limit == 512 * MIB


def test_control_groups_of_version_1(tmp_path):
    write(tmp_path, "proc/self/cgroup", "4:memory:/a/b\n1:cpu,cpuacct:/a\n0::/")
    write(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
    write(tmp_path, "sys/fs/cgroup/memory/a/memory.limit_in_bytes", str(256 * MIB))
    write(tmp_path, "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", str(300 * MIB))
    write(tmp_path, "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "50000")
    write(tmp_path, "sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000")
    write(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
    write(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    assert limits.read_cores(tmp_path).quota == 0.5
    assert limits.read_memory(tmp_path).limit == 256 * MIB


def test_inside_a_container_its_own_group_is_the_root(tmp_path):
    # The path is the host's, of which the container sees nothing.
    write(tmp_path, "proc/self/cgroup", "0::/../../host/container")
    write(tmp_path, "sys/fs/cgroup/cpu.max", "200000 100000")
    write(tmp_path, "sys/fs/cgroup/memory.max", str(64 * MIB))
    assert limits.read_cores(tmp_path).quota == 2
    assert limits.read_memory(tmp_path).limit == 64 * MIB


def test_nothing_to_read_is_no_limit(tmp_path):
    assert limits.read_cores(tmp_path).quota is None
    memory = limits.read_memory(tmp_path)
    assert (memory.limit, memory.shm, memory.machine) == (None, None, 0)
    buffers = limits.read_socket_buffers(tmp_path)
    assert (buffers.receive_max, buffers.send_max) == (None, None)
    assert 0 < buffers.granted <= buffers.wanted


def test_what_is_granted_is_what_a_socket_has():
    buffers = limits.read_socket_buffers()
    assert buffers.receive_max is not None
    assert buffers.granted == buffers.wanted or buffers.granted >= buffers.receive_max


# Interfaces.


def test_interfaces_are_read(tmp_path):
    assert interfaces.read_interfaces(tmp_path / "none") == []
    for name, mtu, state, flags in (("a0", 1500, "down", "0x1003"), ("b0", 9000, "up", "0x1003")):
        write(tmp_path, f"{name}/mtu", str(mtu))
        write(tmp_path, f"{name}/operstate", state)
        write(tmp_path, f"{name}/flags", flags)
        write(tmp_path, f"{name}/speed", "-1" if name == "a0" else "10000")
    (tmp_path / "bonding_masters").write_text("", encoding="ascii")
    found = interfaces.read_interfaces(tmp_path)
    assert [each.name for each in found] == ["b0", "a0"]
    assert [each.lanes for each in found] == [16, 5]
    assert [each.speed_mbit_per_s for each in found] == [10000, None]
    assert [each.up for each in found] == [True, False]
    assert found[0].address == ""
    assert found[0].offloads == {}


def test_offloads_are_asked_of_the_kernel():
    found = read_offloads("lo")
    if not found:
        pytest.skip("this kernel does not answer")
    assert found["tx-scatter-gather"] is True
    assert read_offloads("no such interface") == {}


def test_reading_leaves_no_descriptor_open():
    def open_descriptors():
        return len(os.listdir("/proc/self/fd"))

    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 0
    before = open_descriptors()
    for _ in range(3):
        interfaces.read_interfaces()
        limits.read_socket_buffers()
        sharing.why_not_shared(AggregatorUrl("auto"))
    # Objects of earlier tests may be closed meanwhile.
    assert open_descriptors() <= before


# Shared memory and advice.


def test_whether_ranks_share_memory(monkeypatch):
    assert sharing.why_not_shared(AggregatorUrl("auto")) == ""
    assert sharing.why_not_shared(AggregatorUrl("shm")) == ""
    assert "asks for something else" in sharing.why_not_shared(AggregatorUrl.parse("udp://host"))
    monkeypatch.delattr(os, "memfd_create")
    assert "memory files" in sharing.why_not_shared(AggregatorUrl("auto"))


def sound_report():
    return {
        "socket_buffers": {"granted": 16 * MIB, "wanted": 16 * MIB, "receive_max": 16 * MIB,
                           "send_max": 16 * MIB},
        "interfaces": [],
        "cores": {"machine": 8, "affinity": 8, "quota": None, "usable": 8},
        "sums": {"instruction_set": "avx2", "instruction_sets": ["default", "avx2"]},
        "aggregators": [],
    }  # fmt: skip


def test_a_sound_machine_gets_no_advice():
    assert advice(sound_report()) == []


def test_small_buffers_name_the_sysctl():
    report = sound_report()
    report["socket_buffers"] |= {"granted": 212_992, "receive_max": 212_992}
    (sentence,) = advice(report)
    assert "208 KiB" in sentence
    assert sentence.endswith(f"sudo sysctl -w net.core.rmem_max={16 * MIB}")


def test_small_frames_and_a_quota_are_named():
    report = sound_report()
    report["interfaces"] = [
        {"name": name, "up": up, "loopback": False, "lanes": lanes, "address": "192.0.2.1"}
        for name, up, lanes in (("eth0", True, 5), ("eth1", False, 5), ("eth2", True, 16))
    ]
    report["cores"]["quota"] = 1.5
    sentences = advice(report)
    assert len(sentences) == 2
    assert "ip link set dev eth0 mtu 9000" in sentences[0]
    assert "1.5 processors" in sentences[1]


def test_everything_unknown_can_be_shown():
    report = {
        **sound_report(),
        "versions": {"afflux": "1", "torch": "2", "python": "3", "kernel": "6"},
        "aggregator": "auto",
        "shared_memory": {"used_by_ranks_here": False, "reason": "none"},
        "carrier": {"asked": "tcp", "used": "tcp", "reason": "", "rdma_devices": []},
        "processor": {"name": "", "features": []},
        "memory": {"machine": 0, "available": 0, "limit": None, "shm": None},
        "interfaces": [
            {"name": "x", "up": True, "loopback": False, "mtu": 100, "lanes": 0, "address": "",
             "speed_mbit_per_s": None, "driver": "", "offloads": {}}
        ],
        "advice": [],
    }  # fmt: skip
    report["socket_buffers"] |= {"receive_max": None, "send_max": None}
    text = render(report)
    assert "offloads unknown" in text
    assert "unknown" in text
