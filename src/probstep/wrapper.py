"""A torch optimizer around another one: its groups, its state, its hooks. Nothing adapts here."""

import copy
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from torch import optim

from .checks import (
    refuse_assignment,
    refuse_mixed_maximize,
    refuse_unusable,
    refuse_unusable_list,
)
from .step.joint import Joint


def as_one(optimizer: optim.Optimizer | Sequence[optim.Optimizer]) -> optim.Optimizer:
    """Return a list of optimizers as one optimizer, and one as it is."""
    is_list = isinstance(optimizer, list | tuple)
    optimizers: Any = optimizer if is_list else [optimizer]
    for base in optimizers:
        refuse_unusable(base)
        _refuse_wrapped(base)
    if is_list:
        refuse_unusable_list(optimizers)
    return Joint(optimizers) if len(optimizers) > 1 else optimizers[0]


class Wrapper(optim.Optimizer):
    """An optimizer whose groups and state are those of the one inside.

    Args:
        optimizer: The one inside; it stays reachable as `.base`.
    """

    _FIXED: ClassVar[set[str]] = set()  # settings that no later step would obey, or only half
    _SHARED: ClassVar[set[str]] = set()  # what a copy has in common, because it cannot be copied

    def __init__(self, optimizer: optim.Optimizer) -> None:
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

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._FIXED and name in vars(self):
            refuse_assignment(name)
        super().__setattr__(name, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        for name in self._SHARED:
            memo[id(vars(self)[name])] = vars(self)[name]
        memo[id(self)] = twin = type(self).__new__(type(self))
        twin.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return twin

    def _bind(self) -> None:
        """Find what a checkpoint has put into any group, or begin anew, and mirror it in all."""
        raise NotImplementedError


class _Unbound:
    """Stands in for the base optimizer while torch.optim.Optimizer.__init__ fills in its own fields."""

    def __init__(self) -> None:
        self.param_groups: list[dict[str, Any]] = []
        self.state: dict[Any, Any] = {}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Take no notice."""


def _refuse_wrapped(optimizer: object) -> None:
    if isinstance(optimizer, Wrapper):
        raise TypeError(f"This optimizer is adapted already: it is a {type(optimizer).__name__}.")
