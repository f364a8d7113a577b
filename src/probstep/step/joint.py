"""Several optimizers of disjoint parameters as one torch optimizer, for one loss.

`Joint` keeps nothing of its own: groups and states are those of the optimizers inside, in their order,
and every call is passed on to them.
"""

import itertools
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

from torch import Tensor, optim

from .hooks import AFTER, fire_before, firing_own_hooks, has_hooks_before, silent, take_step

Groups = list[dict[str, Any]]


class Joint(optim.Optimizer):
    """One optimizer made of several, which step together.

    Its checkpoint is an ordinary one, over the groups of all. Those of the single optimizers are saved
    and loaded by themselves: `joint.bases[0].load_state_dict(...)`.

    Args:
        bases: The optimizers; no parameter is in two of them.

    Example:
        >>> import torch
        >>> v, w = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))
        >>> joint = Joint([torch.optim.SGD([v], lr=0.5), torch.optim.Adam([w], lr=0.25)])
        >>> v.grad, w.grad = torch.ones(1), torch.ones(1)
        >>> joint.step()
        >>> v.item(), w.item(), [group["lr"] for group in joint.param_groups]
        (0.5, 0.75, [0.5, 0.25])
    """

    def __init__(self, bases: Sequence[optim.Optimizer]) -> None:
        self.bases: list[optim.Optimizer] = []
        shared = set.intersection(*(set(base.defaults) for base in bases))
        defaults = {name: value for name, value in bases[0].defaults.items() if name in shared}
        super().__init__([{"params": []}], defaults)
        self.bases = list(bases)

    @property
    def param_groups(self) -> Groups:
        """The groups of all, the very same dictionaries; the list itself is made anew."""
        return [group for base in self.bases for group in base.param_groups]

    @param_groups.setter
    def param_groups(self, groups: Groups) -> None:
        for base, own in zip(self.bases, self._split(groups), strict=True):
            base.param_groups = own

    @property
    def state(self) -> Any:
        """The states of all, as one mapping."""
        return _States(self.bases)

    @state.setter
    def state(self, state: Any) -> None:
        held = dict(state)
        self.state.clear()
        self.state.update(held)

    @firing_own_hooks
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """Let each of them step."""
        for base in self.bases:
            take_step(base)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters."""
        for base in self.bases:
            base.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:  # noqa: ARG002
        """Raise: only the user knows whose group it is."""
        if self.bases:  # torch adds one while this is being made
            raise TypeError(
                "A group belongs to one of the optimizers in the list: add it there, "
                "opt.base.bases[0].add_param_group(...), and ProbStep will see it."
            )

    def state_dict(self) -> dict[str, Any]:
        """Return one checkpoint of all; its parameters are numbered in the order of the groups."""
        for before in self._optimizer_state_dict_pre_hooks.values():
            before(self)
        states: dict[Any, Any] = {}
        groups: Groups = []
        for k, base in enumerate(self.bases):
            part = base.state_dict()
            first = sum(len(group["params"]) for group in groups)
            states |= {_renumbered(key, first, k): held for key, held in part["state"].items()}
            for group in part["param_groups"]:
                groups.append(group | {"params": [first + number for number in group["params"]]})
        state_dict: dict[str, Any] = {"state": states, "param_groups": groups}
        for after in self._optimizer_state_dict_post_hooks.values():
            state_dict = after(self, state_dict) or state_dict
        return state_dict

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a checkpoint of all: each optimizer gets its groups and its states."""
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = before(self, state_dict) or state_dict
        saved = self._split(state_dict["param_groups"])
        numbers = {n for groups in saved for group in groups for n in group["params"]}
        parts = []
        for k, groups in enumerate(saved):
            own = {n for group in groups for n in group["params"]}
            states = {n: held for n, held in state_dict["state"].items() if n in own}
            for name in state_dict["state"].keys() - numbers:  # what belongs to no parameter
                if str(name).startswith(prefix := f"{k}/"):
                    states[name.removeprefix(prefix)] = state_dict["state"][name]
            parts.append({"state": states, "param_groups": groups})
        for base, part in zip(self.bases, parts, strict=True):
            base.load_state_dict(part)
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    def _split(self, groups: Groups) -> list[Groups]:
        """Return the groups of each optimizer."""
        counts = [len(base.param_groups) for base in self.bases]
        if len(groups) != sum(counts) and self.bases:
            raise ValueError(
                f"The optimizers have {' + '.join(map(str, counts))} parameter groups, and there are "
                f"{len(groups)}. A checkpoint of a single optimizer is loaded by that optimizer: "
                "opt.base.bases[0].load_state_dict(...)."
            )
        ends = list(itertools.accumulate(counts, initial=0))
        return [groups[begin:end] for begin, end in itertools.pairwise(ends)]

    def __getstate__(self) -> dict[str, Any]:
        return {"bases": self.bases}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


class _States(MutableMapping[Any, Any]):
    """The states of several optimizers as one mapping: a parameter's state is in its own optimizer."""

    def __init__(self, bases: Sequence[optim.Optimizer]) -> None:
        self._bases = bases

    def __getitem__(self, key: Any) -> Any:
        return self._state_of(key)[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._state_of(key)[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._state_of(key)[key]

    def __iter__(self) -> Iterator[Any]:
        return (key for base in self._bases for key in base.state)

    def __len__(self) -> int:
        return sum(len(base.state) for base in self._bases)

    def __contains__(self, key: object) -> bool:
        return any(key in base.state for base in self._bases)

    def get(self, key: Any, default: Any = None) -> Any:
        """Return what is held, without making anything."""
        return self._state_of(key)[key] if key in self else default

    def clear(self) -> None:
        """Forget all."""
        for base in self._bases:
            base.state.clear()

    def _state_of(self, key: Any) -> MutableMapping[Any, Any]:
        for base in self._bases:
            if key in base.state:
                return base.state
        for base in self._bases:
            if any(p is key for group in base.param_groups for p in group["params"]):
                return base.state
        raise KeyError(key)


def bases_of(optimizer: optim.Optimizer) -> list[optim.Optimizer]:
    """Return the optimizers that a joint one is made of; any other is its own only one."""
    return optimizer.bases if isinstance(optimizer, Joint) else [optimizer]


def name_of(optimizer: optim.Optimizer) -> str:
    """Return what to call an optimizer: by its class, or by those that it is made of."""
    return " + ".join(type(base).__name__ for base in bases_of(optimizer))


def any_hooks_before(optimizer: optim.Optimizer) -> bool:
    """Say whether anything fires before a step, of the whole or of what it is made of."""
    return any(has_hooks_before(each) for each in (optimizer, *bases_of(optimizer)))


def fire_all_before(optimizer: optim.Optimizer) -> None:
    """Fire what fires before a step, without the step: its own, and those of what it is made of."""
    if isinstance(optimizer, Joint):
        with silent(optimizer, AFTER):
            firing_own_hooks(lambda _: None)(optimizer)
    for base in bases_of(optimizer):
        fire_before(base)


def _renumbered(key: Any, first: int, k: int) -> int | str:
    """Return a key of the common checkpoint; one that names no parameter says whose it is."""
    return first + key if isinstance(key, int) else f"{k}/{key}"


def owner_of(optimizer: optim.Optimizer, param: Tensor) -> optim.Optimizer:
    """Return the optimizer inside that keeps a state of the parameter."""
    bases = bases_of(optimizer)
    return next((base for base in bases if param in base.state), bases[0])
