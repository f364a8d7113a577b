"""Compiled code stays compiled: probes add at most one compilation, and its buffers are put back."""

import itertools
import threading
import warnings

import pytest
import torch
from torch import nn

from probstep import Every, PaperRule, ProbStep

from .cases import batches, loss_of, step_with_closure

pytestmark = pytest.mark.filterwarnings("ignore:Using `torch.compile", "ignore:The .grad attribute")


class Block(nn.Module):
    """Not one of torch's own modules: those are not compiled by themselves."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return torch.tanh(self.layers(x))


class Compiled:
    """A backend that counts how often it compiled, and how often what it compiled has run."""

    def __init__(self):
        self.compilations = self.runs = 0

    def __call__(self, graph, _):
        self.compilations += 1

        def run(*args):
            self.runs += 1
            return graph.forward(*args)

        return run


@pytest.fixture(autouse=True)
def nothing_is_compiled_yet():
    torch._dynamo.reset()


def network(*layers):
    torch.manual_seed(0)
    return Block(Block(nn.Linear(6, 6), *layers), Block(nn.Linear(6, 3)))


def compiled_in_place(model, backend):
    for block in model.layers:
        block.compile(backend=backend)
    return model


def compiled_blocks(model, backend):
    model.layers = nn.Sequential(*(torch.compile(block, backend=backend) for block in model.layers))
    return model


def compiled_later(model, backend):
    return torch.compile(model, backend=backend)


def compiled_loss(model, backend):
    return torch.compile(lambda x: model(x), backend=backend)


WAYS = {
    "blocks in place": (compiled_in_place, 2),
    "blocks": (compiled_blocks, 2),
    "a wrapper made later": (compiled_later, 1),
    "a function": (compiled_loss, 1),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_used_before", [False, True], ids=["new", "used"])
def test_what_is_compiled_stays_compiled_however_many_probes_there_are(way, is_used_before):
    compile_it, pieces = WAYS[way]
    backend, model = Compiled(), network(nn.BatchNorm1d(6))
    used = compile_it(model, backend)
    data = batches(12)
    if is_used_before:
        loss_of(used, data[0]).backward()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), PaperRule(), model=model)
    for batch in data[:2]:
        opt.step(lambda batch=batch: loss_of(used, batch))
    # One for training and one for probes, which take no gradients; blocks of the same class share code.
    first = backend.compilations
    assert first <= 4 * pieces
    with torch._dynamo.config.patch(error_on_recompile=True):
        for batch in data[2:]:
            before = backend.runs
            opt.step(lambda batch=batch: loss_of(used, batch))
            assert backend.runs >= before + 2 * pieces
    before = backend.runs
    loss_of(used, data[0])
    assert backend.runs == before + pieces
    assert backend.compilations <= first + (not is_used_before)  # once without hooks, at last
    norm = model.get_submodule("layers.0")
    norm = getattr(norm, "_orig_mod", norm).layers[1]
    assert norm.num_batches_tracked == len(data) + 1 + is_used_before  # once for each batch


def test_a_model_that_is_compiled_after_it_was_given_trains_as_an_eager_one():
    losses = []
    for compile_it in (False, True):
        model = network(nn.BatchNorm1d(6), nn.Dropout(0.5))
        opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), PaperRule(), model=model)
        used = torch.compile(model, backend="eager") if compile_it else model
        losses.append([step_with_closure(opt, used, batch).item() for batch in batches(4)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.parametrize(
    ("in_place", "is_below", "with_model"),
    [
        case
        for case in itertools.product([True, False], repeat=3)
        if case != (True, False, True)  # nothing sees inside it, unless it is given as stateful=
    ],
)
def test_a_compiled_module_that_is_not_trained_is_put_back_like_any_other(
    in_place, is_below, with_model
):
    backend, student, teacher = Compiled(), network(nn.BatchNorm1d(6)), nn.BatchNorm1d(6)
    if in_place:
        teacher.compile(backend=backend)
    used = teacher if in_place else torch.compile(teacher, backend=backend)
    used = Block(used) if is_below else used
    base = torch.optim.SGD(student.parameters(), lr=1e-3)
    opt = ProbStep(base, PaperRule(), model=student if with_model else None)
    data = batches(3)
    for x, y in data:
        opt.step(lambda x=x, y=y: loss_of(student, (x + used(x).detach(), y)))
    assert student.layers[0].layers[1].num_batches_tracked == len(data)
    assert teacher.num_batches_tracked == len(data)
    assert opt.last_probe.loss is not None


@pytest.mark.parametrize("with_model", [True, False])
def test_a_compiled_teacher_stays_compiled(with_model):
    backend, student = Compiled(), network()
    teacher = torch.compile(network(), backend=backend)
    base = torch.optim.SGD(student.parameters(), lr=1e-3)
    opt = ProbStep(base, PaperRule(), model=student if with_model else None)
    data = batches(6)

    def loss(batch):
        with torch.no_grad():
            target = teacher(batch[0])
        return nn.functional.mse_loss(student(batch[0]), target)

    for batch in data[:2]:
        opt.step(lambda batch=batch: loss(batch))
    with torch._dynamo.config.patch(error_on_recompile=True):
        for batch in data[2:]:
            before = backend.runs
            opt.step(lambda batch=batch: loss(batch))
            assert backend.runs > before
    assert backend.compilations <= 3


@pytest.mark.parametrize("in_place", [True, False])
def test_what_the_message_tells_the_user_to_pass_works(in_place):
    model = network(nn.BatchNorm1d(6))
    if in_place:
        model.compile(backend="eager")
    used = model if in_place else torch.compile(model, backend="eager")
    batch = batches(1)[0]
    with pytest.raises(RuntimeError, match=r"Pass the model that is trained.*model=model"):
        ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3)).step(lambda: loss_of(used, batch))
    before = model.layers[0].layers[1].num_batches_tracked.item()
    for passed in (model, used):
        opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), PaperRule(), model=passed)
        opt.step(lambda: loss_of(used, batch))
        assert opt.last_probe is not None
    assert model.layers[0].layers[1].num_batches_tracked == before + 2


def test_a_model_that_is_not_the_one_trained_is_refused_at_once():
    student, teacher = network(), torch.compile(network(), backend="eager")
    with pytest.raises(ValueError, match="no parameter of the OptimizedModule"):
        ProbStep(torch.optim.SGD(student.parameters(), lr=1e-3), model=teacher)


def flat(model):
    """The parameters as views of one tensor, as some wrappers keep them."""
    whole = nn.Parameter(nn.utils.parameters_to_vector(model.parameters()).detach())
    nn.utils.vector_to_parameters(whole.detach(), model.parameters())
    return [whole]


RIGHT_THOUGH_NOT_THE_SAME = {
    "a part of it is trained": (network, lambda model: model.layers[1].parameters()),
    "views of one tensor": (network, flat),
    "copies in another format": (
        lambda: network().bfloat16(),
        lambda model: [nn.Parameter(p.detach().float()) for p in model.parameters()],
    ),
    "copies for functional_call": (
        network,
        lambda model: [p.detach().clone().requires_grad_() for p in model.parameters()],
    ),
    "inputs of an unfrozen model": (network, lambda _: [torch.zeros(2, 6, requires_grad=True)]),
    "inputs of a frozen model": (
        lambda: network().requires_grad_(False),
        lambda _: [nn.Parameter(torch.zeros(2, 6))],
    ),
    "lazy parameters": (
        lambda: Block(nn.LazyLinear(3)),
        lambda _: [nn.Parameter(torch.zeros(2, 6))],
    ),
    "a model without parameters": (nn.Tanh, lambda _: [nn.Parameter(torch.zeros(2, 6))]),
    "on no device yet": (
        lambda: network().to("meta"),
        lambda _: [nn.Parameter(torch.zeros(2, 6))],
    ),
}


@pytest.mark.parametrize("what", RIGHT_THOUGH_NOT_THE_SAME)
def test_a_model_that_may_be_the_one_trained_is_taken(what):
    make, params = RIGHT_THOUGH_NOT_THE_SAME[what]
    model = make()
    ProbStep(torch.optim.SGD(params(model), lr=1e-3), model=model)


@pytest.mark.parametrize("in_place", [True, False])
def test_a_compiled_module_in_another_thread_is_nobodys_business(in_place):
    model, other = network(), nn.Linear(6, 6)
    if in_place:
        other.compile(backend="eager")
    else:
        other = torch.compile(other, backend="eager")
    batch, errors = batches(1)[0], []

    def evaluate():
        try:
            other(batch[0])
        except RuntimeError as error:
            errors.append(error)

    def loss():
        with warnings.catch_warnings():
            thread = threading.Thread(target=evaluate)
            thread.start()
            thread.join()
        return loss_of(model, batch)

    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), PaperRule(), probe=Every(1))
    opt.step(loss)
    assert not errors


def test_no_hook_is_left_behind():
    from torch.nn.modules import module

    model = network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3))
    opt.step(lambda: loss_of(model, batches(1)[0]))
    with pytest.raises(ZeroDivisionError):
        opt.step(lambda: loss_of(model, batches(1)[0]) / (1 // 0))
    assert not module._global_forward_pre_hooks
    assert not module._global_forward_hooks
