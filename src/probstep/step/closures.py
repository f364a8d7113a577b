"""The two kinds of closure: one that only computes the loss, and one that runs backward as well."""

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

Forward = Callable[[], Tensor]
Gradient = tuple[Tensor | None, int | None]  # of a parameter, with its version
Recording = AbstractContextManager[None] | None  # None records nothing

NOT_WATCHED: AbstractContextManager[Sequence[Tensor]] = nullcontext(())
WITNESSES = 8  # parameters, spread over all, that show whether gradients are new
SURE_AFTER = 3  # steps in a row after which a closure is expected to go on as it does

NO_GRAPH = (
    "The loss depends on no parameter that requires a gradient, so there is nothing to descend. Usual "
    "causes, the likeliest first: 1. all parameters of the model are frozen (requires_grad=False): "
    "unfreeze those that are to be trained; 2. the loss is computed under torch.no_grad() or "
    "torch.inference_mode(): leave that out, also around step(); 3. the loss is cut off from its graph "
    "(.detach(), .item(), torch.tensor(...)): return the loss itself."
)


def mean_of(loss: Tensor) -> Tensor:
    """Return the loss as one number, also where per-sample losses are given."""
    return loss.mean() if loss.dim() else loss


class Habit:
    """Remembers what earlier steps have taught about a closure.

    Usually the gradients alone show whether a closure ran backward: it leaves them alone, drops them, or
    makes new ones. If it zeroes them or adds to them in place, they do not show it. Then hooks watch for
    backward itself, at a small price.

    - `is_needed`: the next pass needs these hooks. They were there `watched` times in a row.
    - `pure`: so many times in a row the closure has only computed the loss. After some of them it finds
      the gradients cleared: nothing has to be compared, and their memory is free for its pass.
    - `renewing`: so many times in a row it has run backward and made new gradients. After some of them
      only the first gradient is looked at.
    - `left`: one gradient as the last pass left it. If the next pass finds it unchanged and only adds to
      it, nobody has cleared it (`has_piled`).
    """

    def __init__(self) -> None:
        self.is_needed = True
        self.pure = self.renewing = self.watched = 0
        self.left: tuple[weakref.ref[Tensor], int] | None = None
        self.has_piled = False

    def leave(self, grad: Tensor) -> None:
        """Take note of a gradient as a pass leaves it."""
        self.left = weakref.ref(grad), grad._version

    def is_untouched(self, before: Sequence[Gradient]) -> bool:
        """Say whether the first gradient is as the last pass left it."""
        if self.left is None:
            return False
        for grad, version in before:
            if grad is not None:
                return self.left[0]() is grad and self.left[1] == version
        return False

    def see(self, before: Sequence[Gradient], *, is_new: bool) -> None:
        """Find out whether the gradients alone will tell, from those before a pass.

        Args:
            before: The gradients, and what their versions were.
            is_new: The pass has put new ones in their place.
        """
        has_any = is_view = is_changed = False
        for grad, version in before:
            if grad is not None:
                has_any = True
                # A view of something larger (DistributedDataParallel's buckets) may be replaced by
                # another without any backward, and come back as the same one after it.
                if grad._is_view():
                    is_view = True
                    break
                is_changed = is_changed or grad._version != version
        if has_any:
            self.is_needed = is_view or (is_changed and not is_new)


def first_pass(
    closure: Forward,
    params: Sequence[Tensor],
    check: Callable[[object], None],
    recording: Recording,
    habit: Habit,
) -> tuple[Tensor | None, Forward | None]:
    """Run the closure, and backward unless it did so itself. Gradients must be enabled.

    Args:
        closure: The user's function.
        params: The parameters whose gradients tell what the closure did.
        check: Raises if what the closure returned is no loss.
        recording: Entered around the closure alone.
        habit: What earlier steps have taught about the closure.

    Returns:
        The loss, and the function that computes it again for a probe; None and None if the closure
        returned None and `check` let it pass.
    """
    if habit.pure >= SURE_AFTER:
        return _pure_pass(closure, params, check, recording, habit)
    if habit.renewing >= SURE_AFTER:
        return _renewing_pass(closure, params, check, recording, habit)
    before = [(grad := p.grad, None if grad is None else grad._version) for p in params]
    is_untouched = habit.is_untouched(before)
    is_watched = habit.is_needed
    watching = (
        _watching_backward(params, is_lasting=habit.watched >= SURE_AFTER)
        if is_watched
        else NOT_WATCHED
    )
    with watching as has_run:
        loss = _run(closure, recording)
    check(loss)
    if loss is None:
        return None, None
    is_first = is_new = False
    for p, (was, _) in zip(params, before, strict=True):
        if p.grad is not was and p.grad is not None:
            is_new, is_first = True, was is None
            if is_first or not is_watched:
                break
    habit.see(before, is_new=is_new)
    habit.watched = habit.watched + 1 if is_watched else 0
    if is_first or has_run or (is_new and not is_watched):
        habit.pure = 0
        habit.renewing = habit.renewing + 1 if is_first or not is_watched else 0
        _see_pile(habit, params, before, has_run, is_untouched=is_untouched)
        return loss, functools.partial(_with_grad, closure)
    _backward(loss, params)
    habit.pure, habit.renewing = habit.pure + 1, 0
    return loss, closure


def _pure_pass(
    closure: Forward,
    params: Sequence[Tensor],
    check: Callable[[object], None],
    recording: Recording,
    habit: Habit,
) -> tuple[Tensor | None, Forward | None]:
    """Run a closure that is expected to compute the loss alone, with the gradients cleared."""
    for p in params:
        p.grad = None
    loss = _run(closure, recording)
    check(loss)
    if loss is None:
        return None, None
    for p in params:
        if p.grad is not None:  # this time it ran backward
            habit.pure = 0
            return loss, functools.partial(_with_grad, closure)
    _descend(loss)
    return loss, closure


def _renewing_pass(
    closure: Forward,
    params: Sequence[Tensor],
    check: Callable[[object], None],
    recording: Recording,
    habit: Habit,
) -> tuple[Tensor | None, Forward | None]:
    """Run a closure that is expected to run backward, and to make new gradients.

    Some parameters are witnesses: to remember the gradients of all would take longer than all the rest.
    (If a closure once clears and fills only the gradients of others, it seems to have run no backward. A
    second backward then raises.)
    """
    witnesses = params[:: -(-len(params) // WITNESSES)]
    # Weak references: if the closure drops gradients, their memory is free for the new ones.
    before = [_weakly(p.grad) for p in witnesses]
    if None in before:
        # A witness without a gradient cannot show whether old ones are cleared: remember all.
        witnesses, before = params, [_weakly(p.grad) for p in params]
    is_view = params[0].grad is not None and params[0].grad._is_view()
    loss = _run(closure, recording)
    check(loss)
    if loss is None:
        return None, None
    if not is_view and _is_new(params[0], before[0]):
        return loss, functools.partial(_with_grad, closure)
    habit.renewing, habit.is_needed = 0, True  # this time it did something else
    if _has_run(params, witnesses, before):
        return loss, functools.partial(_with_grad, closure)
    _backward(loss, params)
    habit.pure += 1
    return loss, closure


def _has_run(
    params: Sequence[Tensor],
    witnesses: Sequence[Tensor],
    before: Sequence["weakref.ref[Tensor] | None"],
) -> bool:
    """Say whether a closure has run backward, from what its witnesses had before and have now."""
    if any(_is_new(p, was) for p, was in zip(witnesses, before, strict=True)):
        return True
    if len(witnesses) == len(params) or all(p.grad is not None for p in witnesses):
        return False  # it has cleared nothing, and what the others have is old
    return any(p.grad is not None for p in params)  # it has cleared all, so what there is is new


def _weakly(grad: Tensor | None) -> "weakref.ref[Tensor] | None":
    return None if grad is None else weakref.ref(grad)


def _is_new(param: Tensor, was: "weakref.ref[Tensor] | None") -> bool:
    """Say whether a parameter has a gradient, and another than it had."""
    return param.grad is not None and (was is None or was() is not param.grad)


def _run(closure: Forward, recording: Recording) -> Tensor:
    if recording is None:  # an empty context is two more calls, and every step comes here
        return closure()
    with recording:
        return closure()


def _see_pile(
    habit: Habit,
    params: Sequence[Tensor],
    before: Sequence[Gradient],
    has_run: Sequence[Tensor],
    *,
    is_untouched: bool,
) -> None:
    """Find out whether a closure has added to the gradients of the step before.

    It has, if nobody touched the gradient since that step and backward has only added to it. Clearing it
    in place would count as one more change.
    """
    for p, (grad, version) in zip(params, before, strict=True):
        if p.grad is None:
            continue
        if is_untouched and p.grad is grad and version is not None:
            additions = sum(other is p for other in has_run)
            habit.has_piled |= 0 < additions == grad._version - version
        habit.leave(p.grad)
        return


@contextmanager
def _watching_backward(params: Sequence[Tensor], *, is_lasting: bool) -> Iterator[list[Tensor]]:
    """Give a list to which backward appends every parameter to whose gradient it adds.

    A hook on a parameter leaves an empty table behind when it is removed, and every later backward pass
    looks into this table. So the first times the hooks are on the nodes that add to the gradients: these
    nodes vanish with the graph. But it takes longer to find them. So a closure that is always watched
    has hooks on its parameters (`is_lasting`).
    """
    has_run: list[Tensor] = []
    watched = [p for p in params if p.grad is not None and p.requires_grad]
    if is_lasting:
        handles = [
            p.register_post_accumulate_grad_hook(has_run.append)  # type: ignore[no-untyped-call]
            for p in watched
        ]
    else:
        nodes = [get_gradient_edge(p).node for p in watched]  # held here: else they are freed
        handles = [
            node.register_hook(lambda *_, p=p: has_run.append(p))
            for node, p in zip(nodes, watched, strict=True)
        ]
    try:
        yield has_run
    finally:
        for handle in handles:
            handle.remove()


def _backward(loss: Tensor, params: Sequence[Tensor]) -> None:
    """Run backward on cleared gradients; if it raises, the gradients are as before."""
    kept = [p.grad for p in params]
    for p in params:
        p.grad = None
    try:
        _descend(loss)
    except BaseException:
        for p, grad in zip(params, kept, strict=True):
            p.grad = grad
        raise


def _descend(loss: Tensor) -> None:
    if not loss.requires_grad:
        raise RuntimeError(NO_GRAPH)
    mean_of(loss).backward()  # type: ignore[no-untyped-call]


def _with_grad(closure: Forward) -> Tensor:
    with torch.enable_grad():
        loss = closure()
    return loss.detach() if isinstance(loss, Tensor) else loss
