"""See the modules that run, by global hooks that compiled code can live with.

Dynamo compiles hooks with the modules, and compiles again when they are others. So the hooks are the
same functions under the same keys whoever watches: a module is compiled at most once with them and
once without, and no buffer inside compiled code is found by them. What finds those is the model.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.nn.modules import module as torchs

from .traces import Buffers

COMPILED = (
    "{} is compiled and holds parameters of the optimizer, and in compiled code no hook finds buffers. "
    "Pass the model that is trained, compiled or not: ProbStep(optimizer, model=model)."
)
IN_TRACE = (
    "Compiled code holds what may be trained. Pass the model: ProbStep(optimizer, model=model)."
)


class Trained:
    """What is trained: the model, if the user gave it, and the parameters.

    Args:
        model: The model.
        params: Give the parameters; None leaves open which they are.
    """

    def __init__(
        self, model: nn.Module | None = None, params: Callable[[], Sequence[Tensor]] | None = None
    ) -> None:
        self.model, self._params = model, params
        self._is_known_compiled = False
        # While a module is being compiled: where it is not trained, that would leave it eager for good.
        self.may_refuse = model is None

    def is_compiled(self) -> bool:
        """Say whether the model, a module in it or a wrapper seen around it is compiled."""
        if self.model is not None and not self._is_known_compiled:
            self._is_known_compiled = any(_is_compiled(part) for part in _parts(self.model))
        return self._is_known_compiled

    def meet(self, compiled: nn.Module) -> None:
        """Take note of a compiled module; refuse it if its buffers matter and nobody gave the model."""
        if self.model is not None:
            own = set(_parts(self.model))
            self._is_known_compiled |= any(part in own for part in _parts(compiled))
        elif self._may_hold(compiled):
            raise RuntimeError(COMPILED.format(type(compiled).__name__))

    def _may_hold(self, module: nn.Module) -> bool:
        """Say whether a module has parameters that are trained."""
        if self._params is None:
            return True
        trained = {id(p) for p in self._params()}
        return any(id(p) in trained for part in _parts(module) for p in part._parameters.values())


@contextmanager
def watching(
    buffers: Buffers,
    trained: Trained,
    see_output: Callable[[object], None] | None = None,
) -> Iterator[None]:
    """As a context: see every module of this thread before it runs, and the model in any case.

    What modules return is shown to `see_output`, if given; a hook for it takes time at every module.

    An optimizer does not know the modules. So the hook is global, and is there only while a pass is
    recorded or replayed. There is none if the model is compiled, or a part of it: a pass with hooks
    would be compiled apart from one without.
    """
    if trained.model is not None:
        buffers.see(trained.model)
        if trained.is_compiled():
            yield
            return
    watch = _Watch(buffers, trained, see_output)
    HERE.watches = (*HERE.watches, watch)
    try:
        watch.begin()
        yield
    finally:
        watch.end()
        HERE.watches = tuple(other for other in HERE.watches if other is not watch)


class _Watch:
    """What one pass in one thread shows."""

    def __init__(
        self, buffers: Buffers, trained: Trained, see_output: Callable[[object], None] | None
    ) -> None:
        self._buffers, self._trained, self._see_output = buffers, trained, see_output
        self._seen = buffers.modules

    def begin(self) -> None:
        """Ask for the hooks."""
        (SEE_OR_REFUSE if self._trained.may_refuse else SEE).ask(self)
        if self._see_output is not None:
            SEE_OUTPUT.ask(self)

    def end(self) -> None:
        """Ask for no hook any more."""
        for hook in (SEE, SEE_OR_REFUSE, SEE_OUTPUT):
            hook.leave(self)

    def see(self, module: nn.Module) -> None:
        """Remember a module that is about to run, unless seen already, and what is compiled in it."""
        if module not in self._seen:
            self._see_first(module)

    @_disable_dynamo
    def _see_first(self, module: nn.Module) -> None:
        compiled = [part for part in _parts(module) if _is_compiled(part)]
        for part in compiled:
            self._trained.meet(part)
        self._buffers.see(module)
        if self._trained.model is not None:
            if compiled and self._trained.is_compiled():
                self.end()  # so what it runs finds no hooks
        elif any(part is not module or isinstance(part, _compiled_wrapper()) for part in compiled):
            # All in it has been seen. (What is compiled in place hides itself, unless it is refused.)
            self._trained.may_refuse = False
            SEE.ask(self)
            SEE_OR_REFUSE.leave(self)

    def see_output(self, output: object) -> None:
        """Show what a module returned."""
        if self._see_output is not None:
            self._see_output(output)


class _Here(threading.local):
    """The watches of a thread, the outermost first."""

    watches: tuple[_Watch, ...] = ()


HERE = _Here()


# Every module that runs comes through these, so the usual case must take few calls. What they ask
# first is all that is ever compiled: dynamo would guard whatever else they read.


def _see(module: nn.Module, _: object) -> None:
    if torch.compiler.is_compiling():
        return
    for watch in HERE.watches:
        watch.see(module)


def _see_or_refuse(module: nn.Module, _: object) -> None:
    if torch.compiler.is_compiling():
        # The compiler lets such code run uncompiled. Then it is known whose parameters they are.
        if any(p.requires_grad for p in module.parameters()):
            raise RuntimeError(IN_TRACE)
        if module.training and any(True for _ in module.buffers()):
            raise RuntimeError(IN_TRACE)
        return
    for watch in HERE.watches:
        watch.see(module)


def _see_output(_: nn.Module, __: object, output: object) -> None:
    if torch.compiler.is_compiling():
        return
    if type(output) is Tensor and output.dtype is torch.float32:
        return  # nobody looks for this format
    for watch in HERE.watches:
        watch.see_output(output)


class _GlobalHook:
    """A hook of all modules, always the same one under the same key, there while a watch asks for it.

    Torch's own registration takes another key every time, and whatever was compiled with the hook
    would be compiled again.
    """

    def __init__(self, hooks: dict[Any, Any], hook: Callable[..., None]) -> None:
        self._hooks, self._hook, self._key = hooks, hook, f"probstep.{hook.__name__}"
        self._asking: list[_Watch] = []
        self._lock = threading.Lock()

    def ask(self, watch: _Watch) -> None:
        """Have the hook for a watch."""
        with self._lock:
            self._asking.append(watch)
            self._hooks[self._key] = self._hook

    def leave(self, watch: _Watch) -> None:
        """Take the hook away, unless another watch still asks for it."""
        with self._lock:
            if watch in self._asking:
                self._asking = [other for other in self._asking if other is not watch]
                if not self._asking:
                    self._hooks.pop(self._key, None)


SEE = _GlobalHook(torchs._global_forward_pre_hooks, _see)
SEE_OR_REFUSE = _GlobalHook(torchs._global_forward_pre_hooks, _see_or_refuse)
SEE_OUTPUT = _GlobalHook(torchs._global_forward_hooks, _see_output)


def _parts(module: nn.Module) -> Iterator[nn.Module]:
    """Give a module and all below it, each once; not nested as `modules()`, which may be too deep."""
    waiting, seen = [module], set[nn.Module]()
    while waiting:
        part = waiting.pop()
        if part not in seen:
            seen.add(part)
            yield part
            waiting += [inner for inner in part._modules.values() if inner is not None]


def _is_compiled(module: nn.Module) -> bool:
    """Say whether a module is compiled in place, or is what torch.compile wraps around one."""
    return module._compiled_call_impl is not None or isinstance(module, _compiled_wrapper())


def _compiled_wrapper() -> Any:
    """Return the class in which torch.compile wraps modules; an empty tuple if nobody compiles."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    return () if dynamo is None else dynamo.OptimizedModule
