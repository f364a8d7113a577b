"""Today's tuning-free methods, each through its authors' own package (extra `peers`).

Nothing is imported until a method is made: the bench works without any of these packages. What a
package cannot do is said by the `limits` of its row.
"""

from functools import partial
from importlib import import_module
from typing import Any

from torch import optim
from torch.optim import Optimizer

from probstep.bench.methods.method import Build, Method, Needs, read_group, read_nothing


def import_peer(package: str, module: str, name: str) -> Any:
    """Return what a peer's package offers under a name.

    Raises:
        ImportError: The package is not installed; the message says how to get it.
    """
    try:
        return vars(import_module(module))[name]
    except ImportError as error:
        raise ImportError(
            f"This method comes from the package {package!r}, which cannot be imported: {error}. "
            'Install the peers with: pip install "probstep[peers]"'
        ) from error


def peer(package: str, module: str, name: str) -> Build:
    """Return a function that makes the optimizer of a peer's package."""

    def build(params: Any, **settings: Any) -> Optimizer:
        optimizer: Optimizer = import_peer(package, module, name)(params, **settings)
        return optimizer

    return build


def switching_peer(package: str, module: str, name: str) -> Build:
    """Return likewise for one that must be told that training begins."""

    def build(params: Any, **settings: Any) -> Optimizer:
        optimizer = import_peer(package, module, name)(params, **settings)
        optimizer.train()
        return optimizer  # type: ignore[no-any-return]

    return build


def mechanised(base: type[optim.Optimizer]) -> Build:
    """Return a function that makes Mechanic around a torch optimizer."""

    def build(params: Any, **settings: Any) -> Optimizer:
        mechanize = import_peer("mechanic-pytorch", "mechanic_pytorch", "mechanize")
        optimizer: Optimizer = mechanize(base)(params, **settings)
        return optimizer

    return build


def read_distance(optimizer: Any) -> float | None:
    """Return the step size of DoG's first tensor."""
    found = optimizer.param_groups[0].get("eta")
    return None if found is None else float(found[0])


def read_mechanic(optimizer: Any) -> float | None:
    """Return the step size that Mechanic has found."""
    memory = optimizer.state.get("_mechanic")
    return None if memory is None else float(memory["s"].sum() * optimizer.param_groups[0]["lr"])


_free = partial(Method, family="peer", rate="factor", default_rate=1.0)
_prodigy_plus = switching_peer(
    "prodigy-plus-schedule-free", "prodigyplus", "ProdigyPlusScheduleFree"
)
_dadaptation = partial(
    _free,
    source="Defazio and Mishchenko, arXiv:2301.07733",
    package="dadaptation",
    read_rate=read_group("lr", "d"),
)
_schedule_free = partial(
    Method,
    family="peer",
    source="Defazio et al., arXiv:2405.15682",
    package="schedulefree",
    needs=Needs(mode_switch=True),
)
_distance_over_gradients = partial(
    _free,
    base="sgd",
    source="Ivgi et al., arXiv:2302.12022",
    package="dog-optimizer",
    needs=Needs(averaging=True),
    limits=frozenset({"grad_none", "deepcopy"}),
    read_rate=read_distance,
)
_momo = partial(
    Method,
    family="peer",
    source="Schaipp et al., arXiv:2305.07583",
    package="momo-opt",
    rate="cap",
    needs=Needs(loss=True),
    read_rate=read_nothing,
)
_mechanic = partial(
    _free,
    source="Cutkosky et al., arXiv:2306.00144",
    package="mechanic-pytorch",
    limits=frozenset({"resume"}),
    read_rate=read_mechanic,
)

PEERS: tuple[Method, ...] = (
    _free(
        "prodigy",
        peer("prodigyopt", "prodigyopt", "Prodigy"),
        base="adam",
        source="Mishchenko and Defazio, arXiv:2306.06101",
        package="prodigyopt",
        read_rate=read_group("lr", "d"),
    ),
    _free(
        "prodigy_plus",
        _prodigy_plus,
        base="adamw",
        source="github.com/LoganBooker/prodigy-plus-schedule-free",
        package="prodigy-plus-schedule-free",
        needs=Needs(mode_switch=True),
        limits=frozenset({"deepcopy", "slow_start"}),
        read_rate=read_group("lr", "d"),
    ),
    _dadaptation("dadapt_adam", peer("dadaptation", "dadaptation", "DAdaptAdam"), base="adam"),
    _dadaptation(
        "dadapt_sgd",
        peer("dadaptation", "dadaptation", "DAdaptSGD"),
        base="momentum",
        defaults={"momentum": 0.9},
    ),
    _schedule_free(
        "schedulefree_adamw",
        switching_peer("schedulefree", "schedulefree", "AdamWScheduleFree"),
        base="adamw",
        default_rate=2.5e-3,
    ),
    _schedule_free(
        "schedulefree_sgd",
        switching_peer("schedulefree", "schedulefree", "SGDScheduleFree"),
        base="momentum",
        default_rate=1.0,
    ),
    _distance_over_gradients("dog", peer("dog-optimizer", "dog", "DoG")),
    _distance_over_gradients("ldog", peer("dog-optimizer", "dog", "LDoG")),
    _momo(
        "momo",
        peer("momo-opt", "momo", "Momo"),
        base="momentum",
        default_rate=1.0,
        limits=frozenset({"resume", "grad_none", "groups", "deepcopy"}),
    ),
    _momo(
        "momo_adam",
        peer("momo-opt", "momo", "MomoAdam"),
        base="adam",
        default_rate=1e-2,
        limits=frozenset({"resume", "groups", "deepcopy"}),
    ),
    _mechanic("mechanic_sgd", mechanised(optim.SGD), base="sgd"),
    _mechanic("mechanic_adamw", mechanised(optim.AdamW), base="adamw"),
    Method(
        "cocob",
        peer("parameterfree", "parameterfree", "COCOB"),
        family="peer",
        base="own rates",
        source="Orabona and Tommasi, arXiv:1705.07795",
        package="parameterfree",
        rate=None,
        limits=frozenset({"deepcopy"}),
        read_rate=read_nothing,
    ),
    Method(
        "greedylr",
        optim.AdamW,
        family="peer",
        base="adamw",
        source="Subramanian and Ganapathiraman, arXiv:2512.14527",
        rate="start",
        default_rate=1e-3,
        schedule="greedy",
    ),
)
