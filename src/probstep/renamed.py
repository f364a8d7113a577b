"""Names that have moved: the old ones work for one more version, with a warning."""

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any


def attributes_of(new: ModuleType, old: str) -> Callable[[str], Any]:
    """Return a `__getattr__` for the module `old` that looks into the module `new`.

    >>> import math
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     attributes_of(math, old="arithmetic")("floor")(2.5)
    2
    """

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name.startswith("_"):
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        value = getattr(new, name)
        warnings.warn(
            f"{old} is deprecated: import {name} from {new.__name__}.",
            DeprecationWarning,
            stacklevel=2,
        )
        return value

    return __getattr__
