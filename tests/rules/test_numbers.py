"""The numbers of RobustRule: a dozen, and no constant of its parts has another."""

import ast
import importlib
import inspect
import pkgutil

import pytest

from probstep.rules import robust
from probstep.rules.robust import numbers

PARTS = sorted(m.name for m in pkgutil.iter_modules(robust.__path__) if m.name != "numbers")
PLAIN = {0, 1, -1}
# What guards against overflow and rounding, ends a loop, or follows from other numbers.
NO_CHOICE = {
    "alarm": {"ROUNDING", "HUGE", "NEW_LEVEL"},
    "belief": {"TINY, HUGE"},
    "bound": {"LEAST_SLOPE", "DEVIATIONS"},
    "limits": {"LEAST_SCALE"},
    "losses": {"SECOND"},
    "probes": {"TRIES", "MOST_VAIN"},
    "search": {"TRIES"},
}


def constants(module):
    """Yield the names of a module's constants, and the numbers that are written out in them."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    for node in tree.body:
        if isinstance(node, ast.Assign):
            found = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
            name = ast.unparse(node.targets[0]).strip("()")
            yield name, {n for n in found if isinstance(n, int | float)} - PLAIN


def test_there_are_a_dozen():
    assert len([name for name in vars(numbers) if name.isupper()]) == 12


@pytest.mark.parametrize("part", PARTS)
def test_every_constant_of_a_part_is_made_of_them(part):
    written_out = {name for name, found in constants(f"{robust.__name__}.{part}") if found}
    assert written_out == NO_CHOICE.get(part, set())
