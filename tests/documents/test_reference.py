"""The reference has every public name, and no other."""

import importlib
import inspect
import pkgutil
import re

import pytest

from probstep import baselines

from .pages import ROOT, read

PAGES = ("docs/reference.md", "docs/reference-bench.md")
LISTED = [
    name for page in PAGES for name in re.findall(r"^::: (\S+)$", read(page), flags=re.MULTILINE)
]
HELPERS = ("same_batch", "stepping")  # what rivals share
RIVALS = [m.name for m in pkgutil.iter_modules(baselines.__path__) if m.name not in HELPERS]
# Packages whose __init__ is what others may use.
PACKAGES = ("", ".rules", ".bench.problems", ".bench.methods", ".bench.plans", ".bench.records")
MODULES = (
    *(f".baselines.{name}" for name in RIVALS),
    ".integrations.window",
    ".integrations.lightning",
    ".integrations.transformers",
    ".integrations.accelerate",
    ".integrations.tensorboard",
    ".theory.inference",
    ".theory.covariance",
)
ENTRIES = {  # what users call of these; the rest serves it
    ".integrations.window": ["Window"],
    ".integrations.lightning": ["LearningRateAdaptation"],
    ".integrations.transformers": ["adapt"],
    ".integrations.accelerate": ["track"],
    ".integrations.tensorboard": ["record"],
}


def exports_of(package: str) -> list[str]:
    """The names that a package hands out: `from .x import y as y`."""
    text = read(f"src/probstep{package.replace('.', '/')}/__init__.py")
    return re.findall(r"^ *from \S+ import \w+ as (\w+)$", text, flags=re.MULTILINE)


PUBLIC = [
    *(f"probstep{package}.{name}" for package in PACKAGES for name in exports_of(package)),
    *(f"probstep{module}.{name}" for module, names in ENTRIES.items() for name in names),
    *(f"probstep{module}" for module in MODULES if module not in ENTRIES),
]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_in_the_reference(name: str) -> None:
    other = name.replace("probstep.rules.", "probstep.")  # the rules themselves are there as well
    assert name in LISTED or other in LISTED


def test_a_package_that_lists_its_names_lists_all() -> None:
    import probstep

    assert set(getattr(probstep, "__all__", exports_of(""))) == set(exports_of(""))


def test_every_name_of_the_reference_exists_once() -> None:
    assert len(LISTED) == len(set(LISTED))
    for name in LISTED:
        module, _, last = name.rpartition(".")
        path = ROOT / "src" / module.replace(".", "/")
        source = (
            path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
        )
        is_module = (path / f"{last}.py").exists()
        assert is_module or re.search(rf"\b{last}\b", source.read_text(encoding="utf-8")), name


@pytest.mark.parametrize("name", exports_of(""))
def test_a_name_that_users_import_is_documented(name: str) -> None:
    assert inspect.getdoc(getattr(importlib.import_module("probstep"), name))
