"""ProbStep as classes, for tools that take an optimizer as a class or by its name.

    probstep.AdamW(model.parameters(), betas=(0.9, 0.95))  # is ProbStep(torch.optim.AdamW(...))

`wrap` makes such a class of any optimizer's. The common ones are ready: `AdamW`, `Adam`, `SGD`,
`RMSprop`, `Adagrad`, and `Muon` where torch has it.
"""

import copyreg
import functools
import inspect
from collections.abc import Callable, Hashable
from typing import Any, ParamSpec

from torch import optim

from .optimizer import ProbStep

P = ParamSpec("P")
START = 1e-3  # for an optimizer that asks for a rate and was given none
SETTINGS = frozenset(inspect.signature(ProbStep).parameters) - {"optimizer"}
PACKAGE = __name__.partition(".")[0]


class Kind(type):
    """The type of the classes that `wrap` makes: they are pickled by what they wrap, not by a name."""

    wrapped: Callable[..., optim.Optimizer]
    settings: tuple[tuple[str, Any], ...]


def wrap(optimizer: Callable[P, optim.Optimizer], **settings: Any) -> Callable[P, ProbStep]:
    """Return a class that is constructed like an optimizer's and is a ProbStep around it.

    It has the arguments of the optimizer's class; `lr` may be left out. The same call returns the same
    class. What it makes can be copied and pickled.

    Args:
        optimizer: The class of an optimizer, such as torch.optim.AdamW.
        settings: Those of `ProbStep`, for all that the class makes: `rule`, `max_lr`, `check`, ...

    Example:
        >>> import torch
        >>> Adapted = wrap(torch.optim.SGD, max_lr=0.5)
        >>> Adapted([torch.nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)
        ProbStep(SGD, rule=RobustRule(), scale=1, effective_lr=[0.1])
    """
    _refuse_unusable(optimizer, settings)
    made: Callable[P, ProbStep] = _make(optimizer, tuple(sorted(settings.items())))
    return made


def _refuse_unusable(optimizer: object, settings: dict[str, Any]) -> None:
    if not isinstance(optimizer, type) or not issubclass(optimizer, optim.Optimizer):
        raise TypeError(
            f"wrap() takes the class of an optimizer, not {optimizer!r}. An optimizer that is made "
            "already goes into ProbStep(optimizer)."
        )
    if issubclass(optimizer, ProbStep):
        raise TypeError(f"{optimizer.__name__} is adapted already: it is a ProbStep.")
    if unknown := sorted(settings.keys() - SETTINGS):
        raise TypeError(
            f"wrap() takes the settings of ProbStep, not {', '.join(unknown)}. Allowed: "
            f"{', '.join(sorted(SETTINGS))}. What the optimizer takes is given when it is made."
        )
    if odd := [name for name, value in settings.items() if not isinstance(value, Hashable)]:
        raise TypeError(
            f"{odd[0]}={settings[odd[0]]!r} may change, and wrap() takes settings that are the same for "
            "all that the class makes. Use a tuple, or ProbStep(optimizer, ...) around one optimizer."
        )


@functools.cache
def _make(optimizer: type[optim.Optimizer], settings: tuple[tuple[str, Any], ...]) -> Any:
    signature = _with_start(inspect.signature(optimizer))
    is_asking = signature != inspect.signature(optimizer)

    @functools.wraps(optimizer.__init__)
    def construct(self: ProbStep, *args: Any, **kwargs: Any) -> None:
        if is_asking and "lr" not in signature.bind(*args, **kwargs).arguments:
            kwargs["lr"] = START
        ProbStep.__init__(self, optimizer(*args, **kwargs), **dict(settings))

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    construct.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[own, *signature.parameters.values()]
    )
    body = {
        "__init__": construct,
        "__module__": PACKAGE,
        "__doc__": f"{optimizer.__name__}, adapted: a ProbStep around {_path(optimizer)}.",
        "wrapped": optimizer,
        "settings": settings,
    }
    return Kind(optimizer.__name__, (ProbStep,), body)


def _with_start(signature: inspect.Signature) -> inspect.Signature:
    """Return a signature in which `lr` may be left out, if that is possible."""
    lr = signature.parameters.get("lr")
    if lr is None or lr.default is not inspect.Parameter.empty:
        return signature
    optional = {**signature.parameters, "lr": lr.replace(default=START)}
    try:
        return signature.replace(parameters=list(optional.values()))
    except ValueError:  # another argument without a default follows
        return signature


def _path(optimizer: type) -> str:
    return f"{optimizer.__module__}.{optimizer.__qualname__}"


def _unpickled(optimizer: type[optim.Optimizer], settings: tuple[tuple[str, Any], ...]) -> Any:
    return wrap(optimizer, **dict(settings))


copyreg.pickle(Kind, lambda made: (_unpickled, (made.wrapped, made.settings)))

AdamW = wrap(optim.AdamW)
Adam = wrap(optim.Adam)
SGD = wrap(optim.SGD)
RMSprop = wrap(optim.RMSprop)
Adagrad = wrap(optim.Adagrad)
if hasattr(optim, "Muon"):  # from torch 2.9 on
    Muon = wrap(optim.Muon)
