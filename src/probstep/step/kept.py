"""Keep what objects hold, and put it back into the same objects.

Compiled steps, schedulers and users hold references to tensors, dictionaries and generators. Through
these they find what was there before.
"""

import itertools
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn, optim

from .ranks import local

Restore = Callable[[], None]

# Tuples: joining types by `|` at every use would take longer than the check itself.
VALUES = (int, float, str, type(None))
SEQUENCES = (list, tuple, deque)
OWNERS = (nn.Module, optim.Optimizer)

# Of these the state is known, and it need not be searched: it holds averages of gradients, no weights
# and no other optimizers. (Of ASGD and Rprop it depends on the rate.)
FAMILIAR = {
    kind
    for name in (
        *("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "SparseAdam"),
        *("RMSprop", "Adagrad", "Adadelta", "Adafactor", "Muon"),
    )
    if (kind := getattr(optim, name, None)) is not None  # older versions of torch lack some
}

MARKS = ("_wrapped_by_lr_sched", "_torchdynamo_orig_callable")  # of a step that torch has wrapped

ALIGNED = 64  # elements
APART = 1 << 16  # bytes: smaller copies are fast enough one by one
TOGETHER = (1 << 25) - (1 << 12)  # bytes: glibc keeps no larger piece for the next time


def is_familiar(optimizer: optim.Optimizer) -> bool:
    """Say whether an optimizer is one of these, and nobody has given it another step.

    >>> is_familiar(torch.optim.SGD([torch.zeros(1)], lr=0.1))
    True
    """
    return type(optimizer) in FAMILIAR and has_step_of_class(optimizer)


def has_step_of_class(optimizer: optim.Optimizer) -> bool:
    """Say whether an optimizer steps as its class does: nobody has given it a step of its own.

    Torch itself does so and changes nothing: a scheduler takes note of the call, and a step may be
    compiled.

    >>> sgd = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    >>> _ = torch.optim.lr_scheduler.StepLR(sgd, 10)
    >>> has_step_of_class(sgd)
    True
    """
    own = vars(optimizer).get("step")
    if own is None:
        return True
    wrapped = getattr(own, "__wrapped__", None)
    is_of_class = getattr(wrapped, "__func__", wrapped) is type(optimizer).step
    return is_of_class and any(hasattr(own, mark) for mark in MARKS)


class Kept:
    """What some objects, and all that can be reached from them, held when this was made.

    It reaches the members of dictionaries, lists, tuples and deques, and the attributes of modules and
    optimizers. Anything else is put back as the same object, but its content is not.

    Args:
        roots: Where to begin.
        is_spared: Says whether a tensor is left alone.

    >>> hidden = {"h": torch.zeros(2)}
    >>> kept = Kept([hidden])
    >>> hidden["h"] += 1
    >>> hidden["steps"] = 1
    >>> kept.restore()
    >>> hidden
    {'h': tensor([0., 0.])}
    """

    def __init__(
        self, roots: Iterable[object], is_spared: Callable[[Tensor], bool] = lambda _: False
    ) -> None:
        self._restores: list[Restore] = []
        for reached in reachable(roots):
            if not (isinstance(reached, Tensor) and is_spared(reached)):
                self._restores += _restores_of(reached)

    @torch.no_grad()
    def restore(self) -> None:
        """Put everything back; it can be done again and again."""
        for restore in self._restores:
            restore()


def reachable(roots: Iterable[object]) -> Iterator[object]:
    """Give the roots and what can be reached from them, each object once, in a fixed order.

    >>> [len(reached) for reached in reachable([{"a": [1, 2]}, "abc"]) if isinstance(reached, list)]
    [2]
    """
    seen: set[int] = set()
    waiting = deque(roots)
    while waiting:
        reached = waiting.popleft()
        if isinstance(reached, VALUES):  # the same one may stand in two places
            yield reached
        elif id(reached) not in seen:
            seen.add(id(reached))
            yield reached
            waiting.extend(_members(reached))


def put_back(tensor: Tensor, content: Tensor) -> None:
    """Give a tensor the content, and the shape, that it had."""
    held = local(tensor.detach())
    if held.shape == content.shape:
        # Behind autograd's back: a graph that waits for its backward may hold the tensor.
        held.data.copy_(content)
    else:
        tensor.data = content.clone()


def _members(reached: object) -> Iterable[object]:
    if isinstance(reached, dict):
        return reached.values()
    if isinstance(reached, SEQUENCES):
        return reached
    if isinstance(reached, OWNERS):
        return vars(reached).values()
    return ()


def _restores_of(reached: object) -> Iterator[Restore]:
    """Give, for an object that can change, the function that puts its own content back."""
    if isinstance(reached, Tensor):
        yield _restore_tensor(reached)
    elif isinstance(reached, dict):
        yield _restore_dict(reached)
    elif isinstance(reached, OWNERS):
        yield _restore_dict(vars(reached))
    elif isinstance(reached, list | deque):
        yield _restore_items(reached)
    else:
        yield from _restores_of_generator(reached)


def _restore_tensor(tensor: Tensor) -> Restore:
    content = local(tensor.detach()).clone()
    return lambda: put_back(tensor, content)


def _restore_dict(members: dict[Any, Any]) -> Restore:
    held = dict(members)

    def restore() -> None:
        members.clear()
        members.update(held)

    return restore


def _restore_items(items: Any) -> Restore:
    held = list(items)

    def restore() -> None:
        items.clear()
        items.extend(held)

    return restore


def _restores_of_generator(reached: Any) -> Iterator[Restore]:
    """Give how to rewind a generator of random numbers: torch's, Python's or NumPy's."""
    numpy = sys.modules.get(
        "numpy"
    )  # no dependency: its generators belong to those who imported it
    if isinstance(reached, torch.Generator):
        state = reached.get_state()
        yield lambda: _ignoring_result(reached.set_state(state))
    elif isinstance(reached, random.Random):
        python = reached.getstate()
        yield lambda: reached.setstate(python)
    elif numpy is not None and isinstance(reached, numpy.random.Generator):
        bits = reached.bit_generator.state
        yield lambda: setattr(reached.bit_generator, "state", bits)
    elif numpy is not None and isinstance(reached, numpy.random.RandomState):
        legacy = reached.get_state()
        yield lambda: reached.set_state(legacy)
    elif numpy is not None and isinstance(reached, numpy.ndarray):
        content = reached.copy()
        yield lambda: numpy.copyto(reached, content)


def _ignoring_result(_: object) -> None:
    """Return nothing."""


def copies_of(tensors: list[Tensor]) -> list[Tensor]:
    """Return copies; on the CPU, if they are not large, in one piece of memory.

    glibc keeps memory for the next time up to the largest piece that was ever given back. What is
    given back beyond that goes to the system, and every page of it costs a fault when it comes again.
    For a model of 5 MB, copied tensor by tensor, that took more time than the copy itself, and slowed
    the passes before and after it.

    >>> [copy.tolist() for copy in copies_of([torch.ones(2), torch.zeros(1, 1)])]
    [[1.0, 1.0], [[0.0]]]
    """
    if not APART < sum(t.nbytes for t in tensors) <= TOGETHER:
        return [t.clone() for t in tensors]
    dtype = tensors[0].dtype
    if not all(_is_contiguous(t) and t.dtype is dtype for t in tensors):
        return [t.clone() for t in tensors]
    # Each begins where an allocation could: how BLAS adds up may depend on that.
    rooms = [-(-t.numel() // ALIGNED) * ALIGNED for t in tensors]
    used = sum(rooms)
    # Half of it is never touched, and costs nothing; but glibc will keep that much more.
    asked = max(used, min(2 * used, TOGETHER // tensors[0].element_size()))
    memory = torch.empty(asked, dtype=dtype, device="cpu")  # the default may be another
    begins = itertools.accumulate(rooms[:-1], initial=0)
    copies = [
        memory.as_strided(t.shape, t.stride(), begin)
        for t, begin in zip(tensors, begins, strict=True)
    ]
    torch._foreach_copy_(copies, tensors)
    return copies


def _is_contiguous(tensor: Tensor) -> bool:
    """Say whether this is an ordinary tensor whose numbers lie side by side in the host's memory."""
    is_ordinary = type(tensor) is Tensor and tensor.is_cpu and tensor.layout is torch.strided
    return is_ordinary and tensor.is_contiguous()
