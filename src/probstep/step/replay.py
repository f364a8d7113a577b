"""Re-evaluate the same batch and leave no trace: random streams, buffers, gradients, grad mode.

A probe must see the very function that the first pass saw: the same dropout masks, and for layers that
read what they mutate (spectral norm) the same buffers. So the first pass is recorded (where the random
streams and the buffers stood when it began), the probe starts from there, and afterwards everything is
put back. Nothing here knows about optimizers.
"""

import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .randomness import HostState, RandomState
from .ranks import drop_gathered
from .seeing import Trained, watching
from .stateful import Declared, Stateful
from .traces import Buffers, gradients_set_aside

# What torch says where a loss asks for gradients (autograd.grad, hooks) and none are computed.
ASKS_FOR_GRADIENTS = re.compile(r"requires?[ _]grad")


@dataclass
class Pass:
    """One recorded forward pass.

    Args:
        opened_by: "closure", "forward_pass" or "model".
        origin: Where the random streams stand when a replay begins: usually at `start`. A pass that the
            model opened has the last mark before it, because its input may have drawn random numbers.
        start: Where the random streams stood when it began.
        buffers: What the buffers held then.
        round: How often the gradients had been cleared before.
        end: Where the streams stood when it ended; None until then, and for a closure.
        rounding: The rounding of the coarsest 16-bit format that a module returned; 0 without any.
    """

    opened_by: str
    origin: RandomState
    start: RandomState
    buffers: Buffers
    round: int
    end: RandomState | None = None
    rounding: float = 0.0


class Tape:
    """The forward passes since the last step, in order, for a probe to replay.

    Args:
        model: The model whose buffers matter; None finds modules as they run.
        stateful: What else a pass changes.
        params: Give the parameters that are trained; None leaves open which they are.

    >>> tape = Tape()
    >>> with tape.recording("closure"):
    ...     first = torch.rand(1)
    >>> again, is_paired = tape.replay(lambda: torch.rand(1))
    >>> bool(again == first), is_paired
    (True, True)
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        stateful: Sequence[Stateful] = (),
        params: Callable[[], Sequence[Tensor]] | None = None,
    ) -> None:
        self._trained, self._stateful = Trained(model, params), stateful
        self._needs_gradients = False  # the forward pass computes gradients inside
        self.replays = 0  # since the tape was cleared
        self._replayed = 0.0  # the rounding that they showed
        self._passes: list[Pass] = []
        self._mark: RandomState | None = None
        self._marked = Declared()  # what the stateful objects held there
        self._latest: HostState | None = None  # of the last look at the random streams
        self._round = 0
        self._open: Pass | None = None  # being recorded: passes inside it belong to it
        self._replay: _Replay | None = None

    def clear(self) -> None:
        """Forget the passes: the step that they led to is done."""
        self._passes.clear()
        self._open = None
        self.replays, self._replayed = 0, 0.0
        if self._mark is not None:
            self._mark, self._marked = None, Declared()

    def mark(self, devices: Iterable[torch.device] = ()) -> None:
        """Note where the streams stand, in case that no pass is recorded before the next probe."""
        if self._open is None and self._replay is None:
            self._mark = self._look(devices)
            self._marked = Declared()
            self._marked.see(self._stateful)

    def gradients_cleared(self) -> None:
        """Forget the passes from before the last time that gradients were cleared: theirs are gone.

        The passes since then are kept, because their backward may still come.
        """
        if self._replay is None:
            if self._passes:
                self._passes = [taken for taken in self._passes if taken.round == self._round]
            self._round += 1

    @property
    def is_replaying(self) -> bool:
        """Say whether a probe is running."""
        return self._replay is not None

    @property
    def rounding(self) -> float:
        """The rounding of the coarsest 16-bit format of all passes and replays; 0 without any.

        Under autocast a loss in float32 is no finer than what it was computed from.
        """
        return max([self._replayed, *(taken.rounding for taken in self._passes)])

    def see_output(self, output: object) -> None:
        """Take note of the format in which a module of the open pass or replay returned numbers."""
        if self._replay is not None:
            self._replayed = max(self._replayed, _short_rounding(output))
        elif self._open is not None:
            self._open.rounding = max(self._open.rounding, _short_rounding(output))

    @property
    def modules(self) -> Iterator[nn.Module]:
        """The modules that the recorded passes ran."""
        return (module for taken in self._passes for module in taken.buffers.modules)

    @contextmanager
    def recording(self, opened_by: str, devices: Iterable[torch.device] = ()) -> Iterator[None]:
        """Record a forward pass; while replaying, rewind to where the same pass began."""
        devices = tuple(devices)
        taken = self.open(opened_by, devices)
        if taken is None:
            yield
        else:
            try:
                with watching(taken.buffers, self._trained, self.see_output):
                    yield
            except BaseException:
                self._open = None
                self._passes.remove(taken)
                raise
        self.close(opened_by, devices)

    def open(self, opened_by: str, devices: Iterable[torch.device] = ()) -> Pass | None:
        """Begin to record a pass, unless one is being recorded; while replaying, rewind."""
        if self._replay is not None:
            self._replay.begin(opened_by)
        elif self._open is None:
            start = self._look(devices)
            origin = self._mark if opened_by == "model" and self._mark is not None else start
            earlier = self._passes[-1].buffers if self._passes else None
            self._open = Pass(opened_by, origin, start, Buffers(earlier), self._round)
            self._open.buffers.declared.see(self._stateful)
            self._passes.append(self._open)
            return self._open
        return None

    def close(self, opened_by: str, devices: Iterable[torch.device] = ()) -> None:
        """End the pass that this opener began."""
        if self._replay is not None:
            self._replay.end(opened_by, self._look(devices))
        elif self._open is not None and self._open.opened_by == opened_by:
            if opened_by != "closure":  # a closure ends where the probe finds the streams
                self._open.end = self._look(devices)
            self._open = None

    def again(self, forward: Callable[[], Tensor], params: Sequence[Tensor]) -> tuple[Tensor, bool]:
        """Replay `forward`, with the gradients of the parameters and of the modules set aside.

        Returns what `forward` returned, and whether it saw the same function as the first pass.
        """
        held = {id(p): p for p in params}  # a set of tensors would ask each for its hash
        for module in self.modules:
            for p in module._parameters.values():
                if p is not None:
                    held[id(p)] = p
        devices = {p.device for p in params if not p.is_cpu}
        with gradients_set_aside(held.values()):
            if not self._needs_gradients:
                try:
                    return self.replay(forward, devices)
                except RuntimeError as error:
                    if torch.is_grad_enabled() or not ASKS_FOR_GRADIENTS.search(str(error)):
                        raise
            with torch.enable_grad():
                value, is_paired = self.replay(forward, devices)
            self._needs_gradients = True
            return value.detach() if isinstance(value, Tensor) else value, is_paired

    def replay(
        self, forward: Callable[[], Tensor], devices: Iterable[torch.device] = ()
    ) -> tuple[Tensor, bool]:
        """Run `forward` from where the recorded passes began; leave streams and buffers as they are.

        Returns what `forward` returned, and whether it saw the same function as the first pass.
        """
        self.replays += 1
        devices = tuple(devices)
        entry = self._look(devices)
        latest = max((taken.round for taken in self._passes), default=0)
        passes = [taken for taken in self._passes if taken.round == latest]
        held = Buffers()
        held.see_again(taken.buffers for taken in passes)
        held.declared.see(self._stateful)
        # What was recorded as a closure is replayed whole, so its formats have been seen.
        is_seen = bool(passes) and passes[0].opened_by == "closure"
        see_output = None if is_seen else self.see_output
        torch.clear_autocast_cache()  # inside autocast it would still hold the weights before the step
        self._replay = _Replay(passes, self._mark or entry, entry)
        now = None
        try:
            self._replay.origin.restore(entry)
            if passes:
                passes[0].buffers.restore()
            if not passes or passes[0].opened_by == "model":
                self._marked.restore()
            with watching(held, self._trained, see_output):
                value = forward()
            now = self._look(devices)
            return value, self._replay.is_paired(now)
        finally:
            self._replay = None
            entry.restore(now)
            torch.clear_autocast_cache()
            drop_gathered(held.modules)
            held.restore()

    def _look(self, devices: Iterable[torch.device]) -> RandomState:
        """Look where the random streams stand."""
        now = RandomState(devices, since=self._latest)
        self._latest = now.host
        return now


def _short_rounding(output: object) -> float:
    tensors = output if isinstance(output, tuple | list) else (output,)
    shorts = (t for t in tensors if isinstance(t, Tensor) and t.is_floating_point())
    return max((torch.finfo(t.dtype).eps for t in shorts if t.element_size() < 4), default=0.0)


class _Replay:
    """Follows a replay along the recorded passes and notices where it leaves them.

    It may jump from one pass to the next, because others (a data loader, say) draw between passes. But
    before a jump it must have drawn nothing that the first pass did not draw. So it must stand where
    the last pass ended, or where the next pass begins.
    """

    def __init__(self, passes: list[Pass], mark: RandomState, entry: RandomState) -> None:
        self._passes, self._entry = passes, entry
        self._next = 0
        self._strayed = False
        self.origin = passes[0].origin if passes else mark
        self._rest = self.origin  # where the replay stood when it last had followed the record

    def begin(self, opened_by: str) -> None:
        """Jump to where the next pass began, if it is this opener's."""
        if self._next < len(self._passes) and self._passes[self._next].opened_by == opened_by:
            taken = self._passes[self._next]
            now = RandomState(taken.start.devices, since=taken.start.host)
            self._strayed |= now not in (self._rest, taken.start)
            taken.start.restore(now)
            taken.buffers.restore()

    def end(self, opened_by: str, now: RandomState) -> None:
        """Compare with where that pass ended."""
        if self._next < len(self._passes) and self._passes[self._next].opened_by == opened_by:
            self._strayed |= now != self._passes[self._next].end
            self._next += 1
            self._rest = now

    def is_paired(self, now: RandomState) -> bool:
        """Say whether the replay saw the same function: the same numbers drawn, or none at all."""
        if self._strayed:
            return False
        if self._next == 0:  # nothing was rewound: one run from the origin to the end
            last = self._passes[-1].end if self._passes else None
            return now in (self.origin, self._entry, last)
        is_complete = self._next == len(self._passes)
        drew_nothing = all(taken.start == taken.end for taken in self._passes)
        return (is_complete or drew_nothing) and now in (self._rest, self._entry)


class ModelHooks:
    """A model's hooks that tell an owner where its forward passes begin and end.

    They neither keep the owner alive nor travel with the model: copies and pickles get hooks that do
    nothing, so that an averaged copy never writes on the original's tape.
    """

    def __init__(self, tell: Callable[[nn.Module, object, bool], None], *, begins: bool) -> None:
        self._tell = weakref.WeakMethod(tell)
        self._begins = begins

    def __call__(self, module: nn.Module, *values: object) -> None:
        """Tell the owner, if it still lives; not while the model is being compiled."""
        if torch.compiler.is_compiling():  # asked first: nothing else here can be compiled
            return
        tell = self._tell()
        if tell is not None:
            # The last value is what goes in when it begins, and what comes out at the end.
            tell(module, values[-1], self._begins)

    def __reduce__(self) -> Any:
        return _no_hook, ()


def _no_hook() -> Callable[..., None]:
    return _ignore


def _ignore(*_: object) -> None:
    """Do nothing."""
