"""The command `afflux nccl-env`, in a process of its own as people start it."""

import os
import subprocess
import sys

from tests.support.host.aggregators import aggregator, closed_port


def nccl_env(*words, **variables):
    return subprocess.run(
        [sys.executable, "-m", "afflux.commands.cli", "nccl-env", *words],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_prints_what_to_export_and_has_checked_it():
    with aggregator() as url:
        done = nccl_env(url)
        conf = nccl_env("--conf", AFFLUX_AGGREGATOR=url)
    assert done.returncode == 0, done.stdout + done.stderr
    *checks, plugin, enable, where = done.stdout.splitlines()
    assert all(each.startswith("# ok: ") for each in checks)
    assert "# ok: using lo 127.0.0.1" in checks
    assert any(f"{url} answers: soft, for 64 nodes" in each for each in checks)
    name, _, path = plugin.partition("=")
    assert name == "export NCCL_NET_PLUGIN" and os.path.isfile(path)
    assert enable == "export NCCL_COLLNET_ENABLE=1"
    assert where == f"export AFFLUX_AGGREGATOR={url}"
    assert conf.stdout.splitlines()[-3:] == [
        f"NCCL_NET_PLUGIN={path}",
        "NCCL_COLLNET_ENABLE=1",
        f"AFFLUX_AGGREGATOR={url}",
    ]


def test_an_aggregator_that_does_not_answer_is_missing():
    url = f"udp://127.0.0.1:{closed_port()}"
    done = nccl_env(url)
    assert done.returncode == 1
    assert any(line.startswith(f"# MISSING: {url}: ") for line in done.stdout.splitlines())


def test_without_a_running_aggregator_there_is_nothing_to_export():
    done = nccl_env(AFFLUX_AGGREGATOR="auto")
    assert done.returncode == 1 and done.stdout == ""
    assert "AFFLUX_AGGREGATOR: 'auto': ranks start this one themselves" in done.stderr
    assert "expected udp://host[:port]" in done.stderr


def test_streams_among_nodes_need_no_aggregator():
    done = nccl_env("streams://", AFFLUX_INTERFACE="lo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "export AFFLUX_AGGREGATOR=streams://"


def test_a_line_of_the_table_of_sizes(tmp_path):
    outputs = []
    for name, times in (("ring", (30.0, 900.0)), ("network", (20.0, 950.0))):
        lines = [
            f"{size} {size // 4} float sum -1 {time} 0.1 0.2 0 {time} 0.1 0.2 0\n"
            for size, time in zip((8, 1 << 20), times, strict=True)
        ]
        path = tmp_path / name
        path.write_text("# out-of-place\n" + "".join(lines))
        outputs.append(str(path))
    done = nccl_env("streams://", "--measured", *outputs, "--nodes", "4", "--gbit", "25")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["mesh", "25", "4", "0:8"]
    done = nccl_env("streams://", "--measured", *outputs)
    assert done.returncode == 1 and "--measured needs --nodes and --gbit" in done.stderr
