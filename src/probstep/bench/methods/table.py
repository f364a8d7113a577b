"""The methods of the bench: one table, a row each.

Not in the table: learned optimizers (Andrychowicz et al., 2016, arXiv:1606.04474), which must be
trained on other problems before they are used, and so have no defaults to compare with.
Adding a method is adding a row: here, in `rivals`, in `peers`, or in a table of one's own.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from torch import optim

from probstep.bench.methods.adapted import adapted, robust
from probstep.bench.methods.method import Build, Method, Needs
from probstep.bench.methods.peers import PEERS
from probstep.bench.methods.rivals import RIVALS
from probstep.bench.names import IMPORT, check_name


def read_adapted(optimizer: Any) -> float | None:
    """Return the rate of ProbStep's next step, of its first group."""
    return float(optimizer.effective_lr[0])


_fixed = partial(Method, family="fixed", rate="rate")

FIXED: tuple[Method, ...] = (
    _fixed("sgd", optim.SGD, base="sgd", default_rate=1e-3, source="Robbins and Monro, 1951"),
    _fixed(
        "momentum",
        optim.SGD,
        base="momentum",
        default_rate=1e-3,
        defaults={"momentum": 0.9},
        source="Polyak, 1964",
    ),
    _fixed(
        "adagrad", optim.Adagrad, base="adagrad", default_rate=1e-2, source="Duchi et al., 2011"
    ),
    _fixed(
        "rmsprop",
        optim.RMSprop,
        base="rmsprop",
        default_rate=1e-2,
        source="Tieleman and Hinton, 2012",
    ),
    _fixed("adam", optim.Adam, base="adam", default_rate=1e-3, source="Kingma and Ba, 2015"),
    _fixed(
        "adamw", optim.AdamW, base="adamw", default_rate=1e-3, source="Loshchilov and Hutter, 2019"
    ),
    _fixed("nadam", optim.NAdam, base="nadam", default_rate=2e-3, source="Dozat, 2016"),
)
SCHEDULED: tuple[Method, ...] = tuple(
    replace(row, name=f"{row.name}_{schedule}", schedule=schedule)
    for row in FIXED
    for schedule in ("linear", "cosine", "warmup", "warmup_cosine")
)

_adapted = partial(
    Method,
    family="paper's rule",
    rate="start",
    default_rate=1e-3,
    source="A probabilistically motivated learning rate adaptation for stochastic optimization",
    needs=Needs(closure=True, steps_per_epoch=True),
    read_rate=read_adapted,
)
_ROBUST: dict[str, Any] = {
    "family": "default rule",
    "rate": "start",
    "default_rate": 1e-3,
    "needs": Needs(closure=True),
    "read_rate": read_adapted,
    "source": "RobustRule of probstep, docs/robust.md",
}
_GENTLE = {"betas": (0.5, 0.999)}  # the paper halves the momentum of what it adapts

_INSIDE: tuple[tuple[str, Build, dict[str, Any]], ...] = (
    ("sgd", optim.SGD, {}),
    ("momentum", optim.SGD, {"momentum": 0.5}),
    ("adagrad", optim.Adagrad, {}),
    ("rmsprop", optim.RMSprop, {}),
    ("adam", optim.Adam, _GENTLE),
    ("adamw", optim.AdamW, _GENTLE),
    ("nadam", optim.NAdam, _GENTLE),
)

ADAPTED: tuple[Method, ...] = tuple(
    _adapted(f"probstep_{base}", adapted(build), base=base, defaults=defaults)
    for base, build, defaults in _INSIDE
)
# With RobustRule, around the same optimizers at torch's own defaults.
ROBUST: tuple[Method, ...] = tuple(
    replace(row, name=f"robust_{row.name}", build=robust(row.build), **_ROBUST) for row in FIXED
)
# What the average of the weights is worth, to both alike.
AVERAGED: tuple[Method, ...] = tuple(
    replace(
        row,
        name=f"{row.name}_averaged",
        family=f"{row.family}, averaged",
        needs=replace(row.needs, averaging=True),
    )
    for row in (*FIXED, *ROBUST)
)
ADAPTED_WITH_NOISE: tuple[Method, ...] = tuple(
    _adapted(
        f"probstep_{base}_noise",
        adapted(build, per_sample=True),
        base=base,
        defaults={**defaults, "noise": "samples"},
        needs=Needs(per_sample=True, steps_per_epoch=True),
    )
    for base, build, defaults in _INSIDE
)

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        *FIXED,
        *SCHEDULED,
        *ADAPTED,
        *ROBUST,
        *AVERAGED,
        *ADAPTED_WITH_NOISE,
        *RIVALS,
        *PEERS,
    )
}


def get_method(name: str) -> Method:
    """Return the method of a name.

    >>> get_method("adam").default_rate
    0.001
    >>> get_method("adm")
    Traceback (most recent call last):
    ValueError: unknown method 'adm'. Did you mean 'adam' or 'nadam' or 'adamw'? Allowed: sgd, ...
    """
    return METHODS[check_name(name, METHODS, kind="method", hint=IMPORT)]
