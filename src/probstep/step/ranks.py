"""Many ranks, one decision: the only file that imports torch.distributed.

Every rank contributes a share of a number, and the sum over the ranks is the whole number. A loss is
divided by the number of ranks, because gradients are averaged in the same way. A term of a tensor is
divided by the number of ranks that hold the same piece of it. All ranks decide on the same sums, so all
decide alike.
"""

import functools
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from .scalars import pack

Group = Any  # a dist.ProcessGroup; torch builds without distributed have no such name
IS_AVAILABLE = dist.is_available()  # some builds of torch are without it
# torch's own table of process groups, empty as long as there are none. Every step looks here first:
# the public way to ask takes three calls. None if this torch has no such table.
GROUPS = getattr(dist.distributed_c10d, "_pg_map", None) if IS_AVAILABLE else {}
PLAIN = (Tensor, nn.Parameter)  # a tensor of exactly these types is not cut up


@dataclass(frozen=True)
class Ranks:
    """The ranks that train one model together.

    Args:
        size: How many there are.
        group: Their process group; None is torch's default group.

    >>> import torch
    >>> Ranks().total(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """

    size: int = 1
    group: Group = None

    def total(self, values: Tensor) -> Tensor:
        """Return the sum over all ranks: the same bits on each."""
        if self.size == 1:
            return values
        values = values.clone()
        try:
            dist.all_reduce(values, group=self.group)
        except RuntimeError as error:
            raise RuntimeError(
                f"Not all of the {self.size} ranks answered while the numbers of a probe were summed. "
                "One has died, or they did not all call step(): every rank must take every step."
            ) from error
        return values

    def read(self, *shares: Tensor) -> list[float]:
        """Return the sums over all ranks as numbers, read in one transfer.

        >>> import torch
        >>> Ranks().read(torch.tensor(0.5), torch.tensor(True))
        [0.5, 1.0]
        """
        if self.size == 1 and are_on_host(shares):
            return [float(share.item()) for share in shares]  # nothing to sum, nothing to transfer
        numbers: list[float] = self.total(pack(*shares)).tolist()
        return numbers

    def share(self, param: Tensor) -> float:
        """Return one over the number of ranks that hold the same piece of a parameter."""
        return (1 if type(param) in PLAIN else _pieces_of(param)) / self.size


ALONE = Ranks()


class Parallel:
    """The DistributedDataParallel models that steps have run through."""

    def __init__(self) -> None:
        self._models: weakref.WeakSet[nn.parallel.DistributedDataParallel] = weakref.WeakSet()

    def see(self, modules: Iterable[nn.Module | None]) -> None:
        """Take note of those among the modules."""
        kind = nn.parallel.DistributedDataParallel
        self._models.update(module for module in modules if isinstance(module, kind))

    def refuse_join(self) -> None:
        """Raise inside `join()`: there some ranks stop early, and a sum over ranks waits for all."""
        if any(model._join_config.enable for model in self._models):
            raise RuntimeError(
                "ProbStep cannot step inside DistributedDataParallel.join(): ranks that have run out of "
                "batches take no steps, and ProbStep sums the loss over all ranks at every step. Give "
                "all ranks the same number of batches (DistributedSampler, drop_last=True) and leave "
                "join() out. A model that was in join() once stays marked: wrap it anew."
            )


def checked_group(group: Group) -> Group:
    """Return a process group if it is one, or None or False."""
    if group is None or group is False or (IS_AVAILABLE and isinstance(group, dist.ProcessGroup)):
        return group
    raise TypeError(
        "process_group must be a torch.distributed.ProcessGroup, None or False, not a "
        f"{type(group).__name__}. Write process_group=torch.distributed.new_group(ranks); None is "
        "torch's default group, and False says that this process trains alone."
    )


def find_ranks(group: Group | None, model: nn.Module | None) -> Ranks:
    """Return the ranks of a process group, of a DistributedDataParallel model, or torch's default.

    A group of None means the default group if there is one: `group=False` means that this process
    trains alone.
    """
    if GROUPS is not None and not GROUPS:
        return ALONE
    if group is False or dist.group.WORLD is None:
        return ALONE
    if group is None and isinstance(model, nn.parallel.DistributedDataParallel):
        group = model.process_group
    return Ranks(dist.get_world_size(group), group)


def are_on_host(tensors: Iterable[Tensor]) -> bool:
    """Say whether tensors lie on the CPU, where reading costs nothing."""
    return all(tensor.is_cpu for tensor in tensors)


def local(tensor: Tensor) -> Tensor:
    """Return this rank's piece of a tensor, the tensor itself if it is not cut up."""
    if type(tensor) in PLAIN:
        return tensor
    kind = _dtensor()
    if kind is None or not isinstance(tensor, kind):
        return tensor
    piece: Tensor = tensor.to_local()
    return piece


def whole(scalar: Tensor) -> Tensor:
    """Return a scalar as a plain tensor, the same on all ranks."""
    kind = _dtensor()
    if kind is None or not isinstance(scalar, kind):
        return scalar
    value: Tensor = scalar.full_tensor()
    return value


def drop_gathered(modules: Iterable[nn.Module]) -> None:
    """Make fully sharded modules gather their parameters anew at their next forward pass.

    A module without gradients to wait for keeps what it has gathered, and would then go on with
    parameters from before the next step.
    """
    if not (IS_AVAILABLE and dist.is_initialized()):
        return
    from torch.distributed.fsdp import FSDPModule

    for module in modules:
        if isinstance(module, FSDPModule):
            module.reshard()


def _pieces_of(param: Tensor) -> int:
    kind = _dtensor()
    if kind is None or not isinstance(param, kind):
        return 1
    mesh, placements = param.device_mesh, param.placements
    sizes = [mesh.size(dim) for dim, placement in enumerate(placements) if placement.is_shard()]
    return functools.reduce(lambda a, b: a * b, sizes, 1)


def _dtensor() -> Any:
    # Only where ranks exist: the import takes a second, and without ranks there are no DTensors.
    if not (IS_AVAILABLE and dist.is_initialized()):
        return None
    from torch.distributed.tensor import DTensor

    return DTensor
