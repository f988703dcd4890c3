"""A script's way to the backend, and its cost."""

from importlib.metadata import entry_points

import pytest
import torch.distributed as dist
from torch.torch_version import __version__ as torch_version

import afflux.registration
from tests.support.host.scripts import run_script

_WITHOUT_IMPORT = """
import sys
from datetime import timedelta
import torch
import torch.distributed as dist

assert "afflux" not in sys.modules
dist.init_process_group(
    "afflux", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=20)
)
tensor = torch.ones(3)
dist.all_reduce(tensor)
print(dist.get_backend(), tensor.tolist())
dist.destroy_process_group()
"""

_IMPORT_ALONE = """
import subprocess
import sys
import torch.distributed

def refuse(*arguments, **options):
    raise AssertionError(f"started {arguments}")
subprocess.Popen.__init__ = refuse
import afflux
print("afflux.adapters.choice" in sys.modules)
"""


def test_torch_finds_the_backend_by_its_entry_point():
    (found,) = entry_points(group="torch.distributed.backends", name="afflux")
    assert found.load() is afflux.registration.register
    # Twice, as torch may call it after an import has.
    found.load()()
    assert dist.Backend.backend_list.count("afflux") == 1


@pytest.mark.skipif(torch_version < "2.14", reason="torch reads entry points from 2.14 on")
def test_a_script_needs_no_import(tmp_path):
    done = run_script(_WITHOUT_IMPORT, tmp_path)
    assert done.stdout.split("\n")[0] == "afflux [1.0, 1.0, 1.0]", done.stderr


def test_an_import_compiles_nothing(tmp_path):
    done = run_script(_IMPORT_ALONE, tmp_path)
    assert done.stdout.strip() == "False", done.stderr
