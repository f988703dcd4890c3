"""`python -m tests.compat.fault_tolerance`: PyTorch's own tests of reconfiguring, over Afflux.

TORCH_FAULT_TOLERANCE names PyTorch's `test/distributed/test_c10d_fault_tolerance.py`, in a checkout
of it: it is in no wheel. The file runs as it is, for one more backend than it lists; further
arguments are unittest's. It wants torch from 2.14 on, and the imports of torch's own tests
(`expecttest`).
"""

import os
import sys
import unittest
from importlib.util import module_from_spec, spec_from_file_location
from multiprocessing import get_context
from pathlib import Path

from torch.distributed import Backend

import afflux  # noqa: F401 - registers the backend, with a torch that is imported already

_NAME = "AffluxFaultToleranceTest"

_path = Path(os.environ["TORCH_FAULT_TOLERANCE"]).absolute()
_spec = spec_from_file_location(_path.stem, _path)
assert _spec is not None
assert _spec.loader is not None
_theirs = module_from_spec(_spec)
sys.modules[_path.stem] = _theirs
_spec.loader.exec_module(_theirs)
assert "afflux" in Backend.backend_list
_tests = _theirs._make_fault_tolerance_test_class("afflux", "cpu")
# Forked: an import of torch at each rank of each test would take longer than the test.
_forked = get_context("fork").Process
_tests._spawn_processes = lambda test: test._start_processes(_forked)
setattr(_theirs, _NAME, _tests)

if __name__ == "__main__":
    unittest.main(_theirs, argv=[sys.argv[0], "-v", *(sys.argv[1:] or [_NAME])])
