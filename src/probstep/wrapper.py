"""A torch optimizer around another one: shared groups and state, memory that checkpoints carry.

Nothing here adapts anything. The wrapper's memory is plain data under one key, mirrored in every param
group: `state_dict`, `torch.load(weights_only=True)` and distributed checkpoints carry it unasked.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, optim

from .checks import refuse_mixed_maximize, refuse_unusable

MEMORY = "probstep"  # the one key

P = ParamSpec("P")
T = TypeVar("T")


def firing_own_hooks(step: Callable[P, T]) -> Callable[P, T]:
    """Fire the hooks registered on the wrapper: the base's step fires its own and the global ones."""

    @functools.wraps(step)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        optimizer: Any = args[0]
        for before in optimizer._optimizer_step_pre_hooks.values():
            changed = before(optimizer, args, kwargs)
            if changed is not None:
                args, kwargs = changed
        result = step(*args, **kwargs)
        for after in optimizer._optimizer_step_post_hooks.values():
            after(optimizer, args, kwargs)
        return result

    wrapper.hooked = True  # type: ignore[attr-defined]  # torch.optim leaves a hooked step alone
    return wrapper


class Wrapper(optim.Optimizer):
    """An optimizer whose groups and state are those of the one inside.

    Args:
        optimizer: The one inside; it stays reachable as `.base`.
    """

    def __init__(self, optimizer: optim.Optimizer) -> None:
        refuse_unusable(optimizer)
        if isinstance(optimizer, Wrapper):
            raise TypeError(
                f"This optimizer is adapted already: it is a {type(optimizer).__name__}."
            )
        self.base: Any = _Unbound()
        super().__init__([{"params": []}], optimizer.defaults)
        self.base = optimizer

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The base's groups: one list, shared."""
        return self.base.param_groups  # type: ignore[no-any-return]

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.base.param_groups = groups
        if not isinstance(self.base, _Unbound):
            self._bind()

    @property
    def state(self) -> Any:
        """The base's state: one mapping, shared; ProbStep writes nothing into it."""
        return self.base.state

    @state.setter
    def state(self, state: Any) -> None:
        self.base.state = state

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; it steps at its own `lr` times the common scale."""
        refuse_mixed_maximize([*self.param_groups, {**self.defaults, **param_group}])
        self.base.add_param_group(param_group)
        if not isinstance(self.base, _Unbound):
            self._bind()

    def state_dict(self) -> dict[str, Any]:
        """Return the base's state_dict; the adaptation's memory lies in its param_groups."""
        for before in self._optimizer_state_dict_pre_hooks.values():
            before(self)
        state: dict[str, Any] = self.base.state_dict()
        for after in self._optimizer_state_dict_post_hooks.values():
            state = after(self, state) or state
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a checkpoint of ProbStep, or one of the bare optimizer (then the scale starts at 1)."""
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = before(self, state_dict) or state_dict
        refuse_mixed_maximize(state_dict["param_groups"])
        self.base.load_state_dict(state_dict)
        self._bind()
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    def __getattr__(self, name: str) -> Any:
        # What only the base has (train() and eval() of a schedule-free optimizer); nothing private, or
        # a GradScaler would take us for a fused optimizer that unscales by itself.
        if name.startswith("_") or name == "base":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.base, name)

    @property
    def _memory(self) -> dict[str, Any]:
        for group in self.param_groups:
            if MEMORY in group:
                return group[MEMORY]  # type: ignore[no-any-return]
        self._bind()  # the base was given a checkpoint of its own
        return self._memory

    def _remember(self, **changes: Any) -> None:
        # A new dictionary each time: a state_dict taken earlier must not change under its owner.
        memory = {**self._memory, **changes}
        for group in self.param_groups:
            group[MEMORY] = memory

    def _bind(self) -> None:
        """Find the memory in any group, or begin one, and mirror it in all."""
        refuse_mixed_maximize(self.param_groups)
        found: dict[str, Any] = next((g[MEMORY] for g in self.param_groups if MEMORY in g), {})
        memory = self._complete(found)
        for group in self.param_groups:
            group[MEMORY] = memory

    def _complete(self, found: dict[str, Any]) -> dict[str, Any]:
        """Return a memory that has all that it needs, from one that may lack something."""
        raise NotImplementedError

    def _params(self) -> Iterator[Tensor]:
        return (p for group in self.param_groups for p in group["params"])

    def _devices(self) -> set[torch.device]:
        return {p.device for p in self._params()}

    @property
    def _leading(self) -> dict[str, Any]:
        """The first group that moves: others may be frozen, by their rate or by their schedule."""
        return next((g for g in self.param_groups if float(g["lr"])), self.param_groups[0])

    @property
    def _reference_lr(self) -> float:
        """The leading group's rate without its schedule."""
        group = self._leading
        return float(group.get("max_lr", group.get("initial_lr", 0.0)) or group["lr"])

    @property
    def _multiplier(self) -> float:
        """What the schedule makes of that rate."""
        reference = self._reference_lr
        return float(self._leading["lr"]) / reference if reference else 1.0

    @property
    def _beta(self) -> float:
        """The leading group's momentum."""
        group = self._leading
        return float(group.get("betas", (group.get("momentum", 0.0),))[0])

    @property
    def _sign(self) -> float:
        """The sign of the loss in what is minimised."""
        return -1.0 if self.param_groups[0].get("maximize", False) else 1.0

    def _rates_are_zero(self) -> bool:
        """Say whether no step can be seen: a warm-up's first, or the dry run of a checkpoint."""
        rates = [group["lr"] for group in self.param_groups]
        is_on_host = all(
            not isinstance(rate, Tensor) or rate.device.type == "cpu" for rate in rates
        )
        return is_on_host and all(rate == 0 for rate in rates)

    def _step_base(self, scale: float) -> None:
        """Let the base step at `scale` times its rates."""
        with _lent_rates(self.param_groups, scale):
            self.base.step()


@contextmanager
def _lent_rates(groups: list[dict[str, Any]], scale: float) -> Iterator[None]:
    """Multiply every `lr` by the scale and give it back; a tensor, even a shared one, in place."""
    kept = [group["lr"] for group in groups]
    tensors = {id(rate): rate for rate in kept if isinstance(rate, Tensor)}
    contents = {key: rate.clone() for key, rate in tensors.items()}
    try:
        for rate in tensors.values():
            rate.mul_(scale)
        for group, rate in zip(groups, kept, strict=True):
            group["lr"] = rate if isinstance(rate, Tensor) else rate * scale
        yield
    finally:
        for key, rate in tensors.items():
            rate.copy_(contents[key])
        for group, rate in zip(groups, kept, strict=True):
            group["lr"] = rate


class _Unbound:
    """Stands in for the base optimizer while torch.optim.Optimizer.__init__ fills in its own fields."""

    def __init__(self) -> None:
        self.param_groups: list[dict[str, Any]] = []
        self.state: dict[Any, Any] = {}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Take no notice."""
