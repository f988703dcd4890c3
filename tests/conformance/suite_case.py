"""PyTorch's own tests of backends, from the wheel, made to count afflux where they count gloo.

The module `torch.testing._internal.distributed.distributed_test` decides by the name in BACKEND
which tests are run. Its source is taken as it is, but for this: where it asks for "gloo", or lists
backends of which Gloo is one, "afflux" is meant as well. So both run the same tests, and no test is
changed.

Imported in processes whose environment has BACKEND and WORLD_SIZE.
"""

import ast
import importlib.util
import multiprocessing
import os
import sys
from types import ModuleType
from typing import Any

import torch.testing._internal.common_distributed as common

import afflux  # noqa: F401 - registers the backend

__all__ = ["Case", "widened"]

_ORIGIN = "torch.testing._internal.distributed.distributed_test"
_NAME = f"{__name__}_origin"
_BOTH = ("gloo", "afflux")

_context = multiprocessing.get_context("forkserver")


class Widening(ast.NodeTransformer):
    """Put "afflux" beside "gloo": in comparisons with BACKEND, in sets, in lists of backends."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Make `BACKEND != "gloo"` ask for neither of both."""
        self.generic_visit(node)
        if ast.unparse(node.left) != "BACKEND" or ast.unparse(node.comparators[0]) != "'gloo'":
            return node
        operator: ast.cmpop = ast.In() if isinstance(node.ops[0], ast.Eq) else ast.NotIn()
        both = ast.Tuple([ast.Constant(name) for name in _BOTH], ast.Load())
        return ast.copy_location(ast.Compare(node.left, [operator], [both]), node)

    def visit_Set(self, node: ast.Set) -> ast.AST:
        """Widen `{"gloo"}`."""
        if any(ast.unparse(each) == "'gloo'" for each in node.elts):
            node.elts.append(ast.Constant(_BOTH[1]))
        return node

    def visit_List(self, node: ast.List) -> ast.AST:
        """Widen the lists of backends of which profiles are tested."""
        self.generic_visit(node)
        if any(ast.unparse(each) == "dist.Backend.GLOO" for each in node.elts):
            node.elts.append(ast.Constant(_BOTH[1]))
        return node


def widened(source: str, path: str) -> Any:
    """Return the code of the tests' source, with its own line numbers."""
    tree = Widening().visit(ast.parse(source))
    return compile(ast.fix_missing_locations(tree), path, "exec")


def _tests() -> ModuleType:
    features = common.DistTestCases.backend_feature
    for names in features.values():
        if "gloo" in names:
            names.add(_BOTH[1])
    features["plugin"].add(_BOTH[1])
    found = importlib.util.find_spec(_ORIGIN)
    assert found is not None and found.origin is not None
    with open(found.origin, encoding="utf-8") as file:
        source = file.read()
    module = ModuleType(_NAME)
    module.__file__ = found.origin
    sys.modules[_NAME] = module
    exec(widened(source, found.origin), module.__dict__)
    return module


tests = _tests()


def _begin(target: Any, folder: str, *arguments: Any, **named: Any) -> None:
    # The server that ranks are forked from has the environment of its own start.
    os.environ["TEMP_DIR"] = folder
    target(*arguments, **named)


def _process(target: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    arguments = (target, os.environ["TEMP_DIR"], *args)
    return _context.Process(target=_begin, name=name, args=arguments, kwargs=kwargs)


class Case(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    """The tests, each in ranks that are forked instead of started: a second less for each."""

    def setUp(self) -> None:
        """Start the ranks, as `test_distributed_spawn.py` does in PyTorch's sources."""
        super().setUp()
        self._start_processes(_process)
