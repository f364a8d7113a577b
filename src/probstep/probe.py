"""Re-evaluate the same batch and leave no trace: random streams, buffers, gradients, grad mode.

A probe must see the very function that the first pass saw: the same dropout masks, and for layers that
read what they mutate (spectral norm) the same buffers. So the first pass is recorded (where the random
streams and the buffers stood when it began), the probe starts from there, and afterwards everything is
put back. Nothing here knows about optimizers.
"""

import random
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook


class RandomState:
    """Where every random stream stands: torch on the CPU and on the devices given, Python, NumPy.

    >>> before = RandomState()
    >>> _ = torch.rand(3)
    >>> RandomState() == before
    False
    >>> before.restore()
    >>> RandomState() == before
    True
    """

    def __init__(self, devices: Iterable[torch.device] = ()) -> None:
        self._cpu = torch.get_rng_state()
        self._devices = {
            device: torch.get_device_module(device).get_rng_state(device)
            for device in devices
            if device.type not in ("cpu", "meta")
        }
        self._python = random.getstate()
        self._numpy = _numpy_state()

    def restore(self, now: "RandomState | None" = None) -> None:
        """Put every stream back where it stood; with the state of `now`, only those that have moved."""
        torch.set_rng_state(self._cpu)
        for device, state in self._devices.items():
            torch.get_device_module(device).set_rng_state(state, device)
        if now is None or self._python != now._python:
            random.setstate(self._python)
        if self._numpy is not None and (
            now is None or not _same_numpy_state(self._numpy, now._numpy)
        ):
            sys.modules["numpy"].random.set_state(self._numpy)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RandomState):
            return NotImplemented
        return (
            torch.equal(self._cpu, other._cpu)
            and self._python == other._python
            and _same_numpy_state(self._numpy, other._numpy)
            and self._devices.keys() == other._devices.keys()
            and all(torch.equal(a, other._devices[d]) for d, a in self._devices.items())
        )

    __hash__ = None  # type: ignore[assignment]


def _numpy_state() -> tuple[Any, ...] | None:
    # NumPy is no dependency: its stream matters only to those who have imported it.
    numpy = sys.modules.get("numpy")
    return None if numpy is None else numpy.random.get_state()


def _same_numpy_state(a: tuple[Any, ...] | None, b: tuple[Any, ...] | None) -> bool:
    if a is None or b is None:
        return a is b
    return a[2:] == b[2:] and bool((a[1] == b[1]).all())


class Buffers:
    """What the buffers of some modules held when each module was first seen.

    >>> norm = nn.BatchNorm1d(1)
    >>> before = Buffers()
    >>> before.see(norm)
    >>> _ = norm(torch.ones(2, 1))
    >>> before.restore()
    >>> norm.running_mean, norm.num_batches_tracked
    (tensor([0.]), tensor(0))
    """

    def __init__(self) -> None:
        self._seen: dict[nn.Module, dict[str, tuple[Tensor | None, Tensor | None]]] = {}

    def see(self, module: nn.Module) -> None:
        """Remember the buffers of a module and of all below it, unless seen already."""
        if module in self._seen:
            return
        for part in module.modules():
            if part not in self._seen:
                self._seen[part] = {
                    name: (tensor, None if tensor is None else tensor.detach().clone())
                    for name, tensor in part._buffers.items()
                }

    def see_again(self, others: "Iterable[Buffers]") -> None:
        """Remember what the buffers that others have seen hold now."""
        for other in others:
            for module in other._seen:
                self.see(module)

    @torch.no_grad()
    def restore(self) -> None:
        """Put every buffer back: the tensor that was there, and what it held."""
        for module, held in self._seen.items():
            for name, (tensor, content) in held.items():
                if tensor is not None and content is not None:
                    tensor.copy_(content)
                module._buffers[name] = tensor
            for name in module._buffers.keys() - held.keys():
                del module._buffers[name]


@contextmanager
def watching(buffers: Buffers, model: nn.Module | None = None) -> Iterator[None]:
    """See every module that runs meanwhile before it runs; with a model, see that and no other.

    An optimizer knows no modules, hence a global hook, and only while a pass is recorded or replayed.
    """
    if model is not None:
        buffers.see(model)
        yield
        return

    def see(module: nn.Module, _: object) -> None:
        _refuse_compiled(module)
        buffers.see(module)

    handle = register_module_forward_pre_hook(see)
    try:
        yield
    finally:
        handle.remove()


def _refuse_compiled(module: nn.Module) -> None:
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    is_wrapped = dynamo is not None and isinstance(module, dynamo.OptimizedModule)
    if is_wrapped or module._compiled_call_impl is not None:
        raise RuntimeError(
            f"{type(module).__name__} is compiled, and finding its buffers by a hook would recompile it "
            "at every probe. Pass the model: ProbStep(optimizer, model=model)."
        )


@contextmanager
def gradients_set_aside(params: Iterable[Tensor]) -> Iterator[None]:
    """Hide every `.grad` meanwhile, so that whatever runs can neither clear nor add to it.

    >>> w = torch.ones(1, requires_grad=True)
    >>> w.grad = torch.ones(1)
    >>> with gradients_set_aside([w]):
    ...     (w * 5).sum().backward()
    >>> w.grad
    tensor([1.])
    """
    kept = [(p, p.grad) for p in params]
    try:
        for p, _ in kept:
            p.grad = None
        yield
    finally:
        for p, grad in kept:
            p.grad = grad


@dataclass
class Pass:
    """One recorded forward pass: who opened it, where it began, where it left the random streams."""

    opened_by: str
    start: RandomState
    buffers: Buffers
    end: RandomState | None = None


class Tape:
    """The forward passes since the last step, in order, for a probe to replay.

    Args:
        model: The model whose buffers matter; None finds modules as they run.

    >>> tape = Tape()
    >>> with tape.recording("closure"):
    ...     first = torch.rand(1)
    >>> again, is_paired = tape.replay(lambda: torch.rand(1))
    >>> bool(again == first), is_paired
    (True, True)
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        self._model = model
        self._passes: list[Pass] = []
        self._fallback: RandomState | None = None
        self._open = False  # a pass is being recorded: those inside it belong to it
        self._position: int | None = None  # of the next pass to rewind to; None unless replaying

    def clear(self) -> None:
        """Forget the passes: the step that they led to is done."""
        self._passes.clear()
        self._fallback = None

    def mark(self, devices: Iterable[torch.device] = ()) -> None:
        """Note where the streams stand, in case that no pass is recorded before the next probe."""
        if not self._open and self._position is None:
            self._fallback = RandomState(devices)

    @contextmanager
    def recording(self, opened_by: str, devices: Iterable[torch.device] = ()) -> Iterator[None]:
        """Record a forward pass; while replaying, rewind to where the same pass began."""
        if self._position is not None:
            self._rewind(opened_by)
            yield
        elif self._open:
            yield
        else:
            devices = tuple(devices)
            taken = self.open(opened_by, devices)
            self._open = True
            try:
                with watching(taken.buffers, self._model):
                    yield
            finally:
                self._open = False
            if opened_by != "closure":  # a closure ends where the step finds it
                taken.end = RandomState(devices)

    def open(self, opened_by: str, devices: Iterable[torch.device] = ()) -> Pass:
        """Record that a pass begins, by one who will not see its end."""
        taken = Pass(opened_by, RandomState(devices), Buffers())
        self._passes.append(taken)
        return taken

    def on_forward(self, model: nn.Module, devices: Iterable[torch.device]) -> None:
        """Record or rewind as the model's forward begins (called by a hook of the model)."""
        if self._position is not None:
            self._rewind("model")
        elif not self._open:
            self.open("model", devices).buffers.see(model)

    def _rewind(self, opened_by: str) -> None:
        # A pass is rewound only by the same kind of opener: a model called inside a closure must not
        # jump back to where the closure began.
        position = self._position or 0
        if position < len(self._passes) and self._passes[position].opened_by == opened_by:
            self._position = position + 1
            self._passes[position].start.restore()
            self._passes[position].buffers.restore()

    def replay(
        self, forward: Callable[[], Tensor], devices: Iterable[torch.device] = ()
    ) -> tuple[Tensor, bool]:
        """Run `forward` from where the recorded passes began; leave streams and buffers as they are.

        Returns what `forward` returned, and whether it saw the same function as the first pass: it did
        if it ended where the first pass ended, or drew no random number.
        """
        devices = tuple(devices)
        entry = RandomState(devices)
        start, ends, held = self._fallback or entry, [entry], Buffers()
        if self._passes:
            first, last = self._passes[0], self._passes[-1]
            start, ends = first.start, [last.end or entry, last.start]
            held.see_again(taken.buffers for taken in self._passes)
        torch.clear_autocast_cache()  # inside autocast it would still hold the weights before the step
        self._position = 0
        now = None
        try:
            start.restore(entry)
            if self._passes:
                first.buffers.restore()
            with watching(held, self._model):
                value = forward()
            now = RandomState(devices)
            return value, now == start or now in ends
        finally:
            self._position = None
            torch.clear_autocast_cache()
            held.restore()
            entry.restore(now)


class ForwardHook:
    """A model's forward-pre-hook that neither keeps its owner alive nor travels with the model.

    Copies and pickles of the model get a hook that does nothing, so that an averaged copy never writes
    on the original's tape.
    """

    def __init__(self, on_forward: Callable[[nn.Module], None]) -> None:
        self._on_forward = weakref.WeakMethod(on_forward)

    def __call__(self, module: nn.Module, _: object) -> None:
        """Tell the owner, if it still lives, that the model's forward begins."""
        on_forward = self._on_forward()
        if on_forward is not None:
            on_forward(module)

    def __reduce__(self) -> Any:
        return _no_hook, ()


def _no_hook() -> Callable[[nn.Module, object], None]:
    return _ignore


def _ignore(module: nn.Module, inputs: object) -> None:
    del module, inputs
