"""The rehearsal in docs/boards.md, as it is printed there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(400)]

_BLOCK = re.compile(r"<!-- run by tests/host/test_boards_page\.py -->\n```sh\n(.*?)```", re.S)


def test_the_rehearsal_goes_as_the_page_says(tmp_path):
    (commands,) = _BLOCK.findall((ROOT / "docs" / "boards.md").read_text(encoding="utf-8"))
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith("AFFLUX_S")},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    # Whatever happens, no job of the shell outlives it.
    ending = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\nset -e\n"
    script = ending + re.sub(r"wait %\d", r"\g<0> || true", commands)
    result = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    out = result.stdout
    assert "afflux: simulated board at udp://127.0.0.2:4699, its engine's port is 4700" in out
    assert "afflux: board engine on udp://127.0.0.1:4700" in out
    assert "# Out of bounds values : 0 OK" in out
    (rounds,) = re.findall(r"^rounds +(\d+)$", out, re.M)[-1:]
    assert int(rounds) > 0
    assert re.search(r"^jobs +none$", out, re.M)
