"""Trainings whose losses and scales are kept as hexadecimal floats, so that moved code can be compared.

python -m tests.trajectories > tests/trajectories.json
"""

import copy
import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim import lr_scheduler

import probstep
from probstep import PaperRule, ProbStep, RobustRule

from .cases import FORMS, OPTIMIZERS, batches, network, plain_network
from .ranks.spawn import on_ranks

STEPS = 45
RULES = {"paper": PaperRule, "robust": RobustRule}
SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "cosine": lambda opt: lr_scheduler.CosineAnnealingLR(opt, STEPS),
    "warm-up": lambda opt: lr_scheduler.LinearLR(opt, 0.1, 1.0, 10),
}


def train(
    rule: str,
    base: str,
    *,
    form: str = "closure",
    net: Callable[..., Any] = plain_network,
    dtype: torch.dtype = torch.float32,
    schedule: str | None = None,
    resume: bool = False,
    share: slice = slice(None),
    **settings: Any,
) -> list[str]:
    torch.manual_seed(0)
    model = net(dtype)
    opt = ProbStep(OPTIMIZERS[base].make(model.parameters()), RULES[rule](), **settings)
    scheduler = SCHEDULES[schedule](opt) if schedule else None
    numbers = []
    for k, batch in enumerate(batches(STEPS, dtype)):
        if resume and k == STEPS // 2:
            state = copy.deepcopy(opt.state_dict())
            opt = ProbStep(OPTIMIZERS[base].make(model.parameters()), RULES[rule](), **settings)
            opt.load_state_dict(state)
        loss = FORMS[form](opt, model, tuple(part[share] for part in batch))
        if scheduler:
            scheduler.step()
        numbers += [loss.item().hex(), opt.scale.hex()]
    return numbers


def _parallel(dtype: torch.dtype) -> Any:
    return DistributedDataParallel(plain_network(dtype))


def _on_rank(rank: int, size: int) -> list[str]:
    trained = [train(rule, "adam", net=_parallel, share=slice(rank, None, size)) for rule in RULES]
    return [number for numbers in trained for number in numbers]


def all_of_them() -> dict[str, list[str]]:
    found = {}
    for rule in RULES:
        for base in (
            "sgd",
            "sgd-momentum",
            "sgd-decay",
            "sgd-maximize",
            "adam",
            "adamw",
            "rmsprop",
        ):
            found[f"{rule} {base}"] = train(rule, base)
        for form in FORMS:
            found[f"{rule} adam, {form}, dropout"] = train(rule, "adam", form=form, net=network)
        for base in ("sgd", "adam"):
            found[f"{rule} {base} bf16"] = train(rule, base, dtype=torch.bfloat16)
            found[f"{rule} {base} resumed"] = train(rule, base, resume=True)
        for schedule in SCHEDULES:
            found[f"{rule} adam {schedule}"] = train(rule, "adam", schedule=schedule)
    found["paper bound"] = train("paper", "sgd", lower_bound=0.0)
    found["paper noise"] = train("paper", "sgd-momentum", noise=0.01)
    found["paper every 3"] = train("paper", "sgd", probe=probstep.Every(3), lower_bound=0.1)
    ranks = on_ranks(2, {"adam": _on_rank})["adam"]
    return found | {f"rank {k} of 2": numbers for k, numbers in enumerate(ranks)}


if __name__ == "__main__":
    json.dump(all_of_them(), sys.stdout, indent=0)
