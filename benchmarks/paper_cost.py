"""What the paper's rule costs on the paper's nets: time and memory of a step, probed and bare.

    python benchmarks/paper_cost.py                 # both; needs an idle machine, about ten minutes
    python benchmarks/paper_cost.py time --nets fmnist_mlp --batch 16 --seconds 1     # a quick look
    python benchmarks/paper_cost.py memory          # does not mind other work

No data is needed: inputs are random, of the nets' sizes. The time of a step is that of forward,
backward and optimizer; `ratio` is the sum of the probed steps' times over that of the bare ones, taken
in turn, so that a noisy machine disturbs both alike. `copies` is the peak of live tensors in a probed
step beyond that of a bare one, `kept` what is alive after it beyond that, both in units of the
parameters and for a batch of one sample, whose activations hide nothing. A line replaces that of its
kind, net and optimizer in benchmarks/records/paper_cost.jsonl.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from probstep import PaperRule, ProbStep
from probstep.bench.problems import get_problem
from probstep.bench.report.studies.reproduction.evidence import NETS
from probstep.bench.report.studies.reproduction.forecast import INPUTS

RECORDS = Path(__file__).parent / "records" / "paper_cost.jsonl"
BASES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "momentum": lambda params: torch.optim.SGD(params, lr=1e-3, momentum=0.5),
    "adam": lambda params: torch.optim.Adam(params, lr=1e-3, betas=(0.5, 0.999)),
}
LEAST_ROUNDS, MOST_ROUNDS = 3, 200


def make_bare(problem: str, base: str, batch: int) -> Callable[[], object]:
    """A step of the optimizer alone."""
    net, loss = make_loss(problem, batch)
    optimizer = BASES[base](net.parameters())

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def make_probed(problem: str, base: str, batch: int) -> Callable[[], object]:
    """A step of the same optimizer with the paper's rule."""
    net, loss = make_loss(problem, batch)
    optimizer = ProbStep(BASES[base](net.parameters()), rule=PaperRule())
    return lambda: optimizer.step(loss)


def make_loss(problem: str, batch: int) -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    """A net and its loss on a random batch, the same at every call."""
    shape, _ = INPUTS[problem.split("_")[0]]
    torch.manual_seed(0)
    net = get_problem(problem).make_model()
    x, y = torch.randn(batch, *shape), torch.randint(10, (batch,))
    return net, lambda: nn.functional.cross_entropy(net(x), y)


SIDES = {"bare": make_bare, "probed": make_probed}


def measure_time(problem: str, base: str, batch: int, seconds: float) -> dict[str, object]:
    steps = {name: make(problem, base, batch) for name, make in SIDES.items()}
    for step in steps.values():
        step()
    spent = dict.fromkeys(steps, 0.0)
    rounds = 0
    while rounds < LEAST_ROUNDS or (sum(spent.values()) < seconds and rounds < MOST_ROUNDS):
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            spent[name] += time.perf_counter() - began
        rounds += 1
    ratio = round(spent["probed"] / spent["bare"], 4)
    bare = round(1000 * spent["bare"] / rounds, 3)
    return {"batch": batch, "ratio": ratio, "bare_ms": bare, "rounds": rounds}


def measure_memory(problem: str, base: str, batch: int, seconds: float) -> dict[str, object]:
    del batch, seconds
    size = sum(p.numel() * p.element_size() for p in get_problem(problem).make_model().parameters())
    peaks, ends = zip(*(trace(make, problem, base) for make in SIDES.values()), strict=True)
    return {
        "batch": 1,
        "copies": round((peaks[1] - peaks[0]) / size, 4),
        "kept": round((ends[1] - ends[0]) / size, 4),
    }


def trace(make: Callable[..., Callable[[], object]], problem: str, base: str) -> tuple[int, int]:
    """Bytes of tensors at the peak of three steps, and those alive after them.

    The net is made under the profiler, too: it does not know what was allocated before it began, and
    would count such a tensor's end or not, as chance has it.
    """
    before = alive()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(profile_memory=True, activities=activities) as profile:
        step = make(problem, base, batch=1)
        with torch.profiler.record_function("steps"):
            for _ in range(3):
                step()
    events = profile.profiler.kineto_results.events()
    began = next(event.start_ns() for event in events if event.name() == "steps")
    live = highest = 0
    for event in events:
        if event.name() == "[memory]":
            live += event.nbytes()
            highest = max(highest, live) if event.start_ns() >= began else live
    return highest, alive() - before


def alive() -> int:
    """Bytes of all tensors that there are."""
    gc.collect()
    tensors = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
    return sum(
        {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values()
    )


KINDS = {"time": measure_time, "memory": measure_memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "kind", nargs="*", choices=[*KINDS, []], help="time, memory; both if not given"
    )
    parser.add_argument("--nets", nargs="+", default=list(NETS.values()), metavar="NET")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=40.0, help="of timed steps per net")
    parser.add_argument("--to", type=Path, default=RECORDS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = [json.loads(line) for line in read_lines(options.to)]
    for kind in options.kind or KINDS:
        for problem in options.nets:
            for base in BASES:
                place = {"kind": kind, "problem": problem, "base": base}
                found = KINDS[kind](problem, base, options.batch, options.seconds)
                line = {**place, **found, "torch": torch.__version__}
                print(json.dumps(line), flush=True)
                lines = [old for old in lines if not place.items() <= old.items()] + [line]
    lines.sort(key=lambda line: (line["kind"], line["problem"], line["base"]))
    options.to.write_text("".join(json.dumps(line) + "\n" for line in lines))


def read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.is_file() else []


if __name__ == "__main__":
    main()
