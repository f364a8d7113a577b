"""The paper's competitors and later ones, re-implemented in `probstep.baselines`."""

from functools import partial
from typing import Any

from torch import optim

from probstep.baselines.asi2019truncated import Truncated
from probstep.baselines.baydin2018hypergradient import SGDHD, AdamHD
from probstep.baselines.berrada2019alig import AliG
from probstep.baselines.bu2024gen import GeN
from probstep.baselines.dauphin2015esgd import ESGD
from probstep.baselines.loizou2020sps import SPS
from probstep.baselines.mahsereci2017probls import ProbLS
from probstep.baselines.oikonomou2025polyak import ScheduleFreePolyak
from probstep.baselines.rolinek2018l4 import L4
from probstep.baselines.schaul2013vsgd import VSGD
from probstep.baselines.vaswani2019sls import SLS
from probstep.baselines.vaswani2020adasls import AdaSLS
from probstep.baselines.zhang2020sasa import SASA
from probstep.bench.methods.method import Method, Needs, read_group, read_nothing


def read_line(optimizer: Any) -> float | None:
    """Return the step size that the present line of the probabilistic line search tries first."""
    line = optimizer.param_groups[0]["line"]
    return None if line is None else float(line["step_size"])


def read_mean_step(optimizer: Any) -> float | None:
    """Return the mean over all weights of Rprop's step sizes."""
    sizes = [s["step_size"] for s in optimizer.state.values() if "step_size" in s]
    count = sum(size.numel() for size in sizes)
    return sum(size.sum().item() for size in sizes) / count if count else None


_hypergradient = partial(
    Method,
    family="hypergradient",
    source="Baydin et al., arXiv:1703.04782",
    rate="start",
    default_rate=1e-3,
    limits=frozenset({"schedule"}),
)
_polyak = partial(
    Method, family="polyak", needs=Needs(loss=True), read_rate=read_group("rate"), rate="cap"
)
_l4 = partial(
    _polyak, source="Rolinek and Martius, arXiv:1802.05074", rate="factor", default_rate=0.15
)
# The caps 1.0 (SPS_max) and 0.1 (ALI-G) are choices of ours; both codes default to none.
_sps = partial(_polyak, base="sgd", source="Loizou et al., arXiv:2002.10542", default_rate=1.0)
_alig = partial(_polyak, source="Berrada et al., arXiv:1906.05661", default_rate=0.1)
_search = partial(
    Method,
    family="line search",
    rate="start",
    default_rate=1.0,
    needs=Needs(closure=True, steps_per_epoch=True),
    read_rate=read_group("lr", "scale"),
)
_sls = partial(_search, base="sgd", source="Vaswani et al., arXiv:1905.09997")
_adasls = partial(_search, source="Vaswani et al., arXiv:2006.06835")
_gen = partial(
    Method,
    build=GeN,
    family="line search",
    source="Bu and Xu, arXiv:2407.02772",
    rate="start",
    needs=Needs(closure=True),
    read_rate=read_group("lr", "scale"),
)
_schedule_free_polyak = partial(
    _polyak,
    build=ScheduleFreePolyak,
    source="Oikonomou et al., arXiv:2511.07767",
    rate=None,
    needs=Needs(loss=True, mode_switch=True),
)

RIVALS: tuple[Method, ...] = (
    _hypergradient("sgd_hd", SGDHD, base="sgd"),
    _hypergradient("momentum_hd", SGDHD, base="momentum", defaults={"momentum": 0.9}),
    _hypergradient(
        "nesterov_hd", SGDHD, base="momentum", defaults={"momentum": 0.9, "nesterov": True}
    ),
    _hypergradient("adam_hd", AdamHD, base="adam"),
    _hypergradient("adam_hd_sum", AdamHD, base="adam", defaults={"per_tensor": False}),
    _l4("l4_momentum", L4, base="momentum", limits=frozenset({"unstable"})),
    _l4("l4_adam", L4, base="adam", defaults={"direction": "adam"}),
    _sps(
        "sps",
        SPS,
        rate="start",
        needs=Needs(loss=True, steps_per_epoch=True),
        limits=frozenset({"schedule"}),
    ),
    _sps("sps_max", SPS, defaults={"smooth": False}),
    _alig("alig", AliG, base="sgd"),
    _alig("alig_momentum", AliG, base="momentum", defaults={"momentum": 0.9}),
    _polyak(
        "truncated",
        Truncated,
        base="sgd",
        source="Asi and Duchi, arXiv:1903.08619",
        default_rate=1.0,
    ),
    _schedule_free_polyak("schedulefree_polyak_sgd", base="sgd"),
    _schedule_free_polyak("schedulefree_polyak_adam", base="adam", defaults={"metric": "adam"}),
    _sls("sls", SLS),
    _sls("sls_goldstein", SLS, defaults={"search": "goldstein"}),
    _adasls("adasls", AdaSLS, base="adagrad"),
    # The momentum is Adam's; the constructor's default is none.
    _adasls("adasls_adam", AdaSLS, base="adam", defaults={"metric": "adam", "momentum": 0.9}),
    _gen("gen_momentum", base="momentum", default_rate=1e-3),
    # The rate is that of their README's example, the decay that of torch's AdamW.
    _gen(
        "gen_adamw",
        base="adamw",
        default_rate=1e-4,
        defaults={"direction": "adamw", "weight_decay": 1e-2},
    ),
    Method(
        "probls",
        ProbLS,
        family="line search",
        base="sgd",
        source="Mahsereci and Hennig, arXiv:1703.10034",
        rate="start",
        default_rate=1e-2,
        needs=Needs(per_sample=True, mode_switch=True),
        limits=frozenset({"schedule", "slow_start"}),
        read_rate=read_line,
    ),
    Method(
        "sasa",
        SASA,
        family="statistical test",
        base="momentum",
        source="Zhang et al., arXiv:2002.10597",
        rate="start",
        default_rate=0.1,
        read_rate=read_group("lr", "scale"),
    ),
    Method(
        "vsgd",
        VSGD,
        family="own rates",
        base="sgd",
        source="Schaul et al., arXiv:1206.1106 and 1301.3764",
        rate=None,
        needs=Needs(closure=True),
        read_rate=read_nothing,
    ),
    Method(
        "esgd",
        ESGD,
        family="own rates",
        base="sgd",
        source="Dauphin et al., arXiv:1502.04390",
        default_rate=1e-2,
        needs=Needs(closure=True),
    ),
    Method(
        "rprop",
        optim.Rprop,
        family="own rates",
        base="rprop",
        source="Riedmiller and Braun, 1992",
        rate="start",
        default_rate=1e-2,
        limits=frozenset({"schedule"}),
        read_rate=read_mean_step,
    ),
    Method(
        "adadelta",
        optim.Adadelta,
        family="own rates",
        base="adadelta",
        source="Zeiler, arXiv:1212.5701",
        rate="factor",
        default_rate=1.0,
        read_rate=read_nothing,
    ),
)
