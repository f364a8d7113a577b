"""Whether methods take the settings of a plan: each is made once, of one parameter, to see."""

import inspect
import re
import sys
import warnings
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from probstep import PaperRule, ProbStep
from probstep.bench.methods.adapted import OURS, ROBUST
from probstep.bench.methods.method import Method
from probstep.bench.methods.rate_schedules import CONSTANT, SCHEDULES
from probstep.bench.methods.use import prepare
from probstep.bench.names import check_name

UNKNOWN = re.compile(r"unexpected keyword argument '(\w+)'")


@dataclass(frozen=True)
class Fault:
    """A setting that a method does not take, and why."""

    setting: str
    message: str


def find_fault(method: Method, settings: Mapping[str, Any]) -> Fault | None:
    """What is wrong with the settings of a method, if anything.

    A method whose package is not there is passed over.

    >>> from probstep.bench.methods.table import METHODS
    >>> find_fault(METHODS["sgd"], {"momentum": 0.9})
    >>> find_fault(METHODS["sgd"], {"momentun": 0.9}).message[:63]
    "unknown setting of sgd 'momentun'. Did you mean 'momentum'? All"
    """
    fresh = [name for name in settings if name not in method.defaults] or list(settings)
    if not fresh or settings == method.defaults:
        return None
    try:
        if "schedule" in settings:
            fresh = ["schedule"]
            check_name(str(settings["schedule"]), (CONSTANT, *SCHEDULES), kind="schedule")
            fresh = [name for name in settings if name != "schedule"] or fresh
        _make(method, settings)
    except ImportError:
        return None
    except Exception as error:  # whatever a method says of its settings
        if found := UNKNOWN.search(str(error)):
            return Fault(found[1], _unknown(method, found[1]))
        text = str(error).removesuffix(".")
        return Fault(fresh[0], f"{method.name} refuses its settings {dict(settings)}: {text}.")
    return None


def _make(method: Method, settings: Mapping[str, Any]) -> Optimizer:
    task: Any = SimpleNamespace(
        model=nn.ParameterList([nn.Parameter(torch.zeros(1))]), steps_per_epoch=1
    )
    with redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the runs will give them
        return prepare(method, task, settings=settings)


def _unknown(method: Method, name: str) -> str:
    try:
        check_name(name, _allowed(method), kind=f"setting of {method.name}")
    except ValueError as error:
        return str(error)
    return f"{method.name} refuses its setting {name!r}."


def _allowed(method: Method) -> list[str]:
    """The settings that a method takes, as far as they can be found out."""
    optimizer = _make(method, {})
    names = {name for name, value in optimizer.defaults.items() if _takes(method, name, value)}
    named = inspect.signature(method.build).parameters.values()
    names |= {p.name for p in named if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    if isinstance(optimizer, ProbStep):
        names |= OURS if isinstance(optimizer.rule, PaperRule) else ROBUST
    return sorted((names | {"schedule"}) - {"params", "lr", "steps_per_epoch"})


def _takes(method: Method, name: str, value: object) -> bool:
    try:
        _make(method, {name: value})
    except Exception:  # it does not, for whatever reason
        return False
    return True
