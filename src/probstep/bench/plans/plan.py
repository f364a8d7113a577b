"""A plan is data: a short TOML file that says which problems, methods, rates and seeds to combine.

    problems = ["digits_logreg", "digits_mlp"]
    methods = ["adam", "robust_adam"]
    rates = [1e-4, 1e-2, 1.0, "default"]
    seeds = [0, 1]

    [[override]]                        # runs that match get these values
    problem = "digits_mlp"
    epochs = 3

    [[runs]]                            # a product of its own: what it does not say it inherits
    methods = ["sgd"]
    vary = { momentum = [0.0, 0.9] }    # settings to combine, as `settings` are to set

The top level is a product too, where it has both `problems` and `methods`: the first of all.
"""

import itertools
import json
import math
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
)

from probstep.bench.files import read_file
from probstep.bench.methods import METHODS, find_fault
from probstep.bench.names import IMPORT, check_name
from probstep.bench.plans.mistakes import Place, explain, find_line
from probstep.bench.problems import PROBLEMS
from probstep.bench.records import Run, check_depth, finite

LARGEST = sys.float_info.max
MOST_BYTES = 100_000  # of a plan's file
MOST_RUNS = 100_000  # of a plan
MOST_TABLES = 200  # `[[runs]]` or `[[override]]` of a plan
MOST_MISTAKES = 20  # are told at once
DEEPEST = 10  # how far settings may be nested: less than records may


def _parse_rate(value: object) -> float | None:
    if value == "default":
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= LARGEST:
        return float(value)
    raise ValueError('a rate is a positive number, or "default" for the method\'s own')


def _known_problem(name: str) -> str:
    return check_name(name, PROBLEMS, kind="problem", hint=IMPORT)


def _known_method(name: str) -> str:
    return check_name(name, METHODS, kind="method", hint=IMPORT)


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings, if records can hold them, which are JSON."""
    check_depth(settings, DEEPEST)
    if finite(settings) != settings:
        raise ValueError("a setting is a finite number: records can hold neither nan nor inf")
    return settings


# A number in quotes, or true, is a mistake and not a number.
Positive = Annotated[int, Field(strict=True, gt=0, le=10**9)]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Rate = Annotated[float | None, BeforeValidator(_parse_rate)]
ProblemName = Annotated[str, AfterValidator(_known_problem)]
MethodName = Annotated[str, AfterValidator(_known_method)]


class Values(BaseModel):
    """What can be said of runs, at the top of a plan, in a product, in an override."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rates: Annotated[list[Rate], Field(min_length=1)] = [None]
    seeds: Annotated[list[Seed], Field(min_length=1)] = [0]
    epochs: Positive | None = None
    subset: Positive | None = None
    batch_size: Positive | None = None
    evaluation: Literal["clean", "paper"] = "clean"
    settings: Annotated[dict[str, JsonValue], AfterValidator(_plain)] = {}
    vary: Annotated[
        dict[str, Annotated[list[JsonValue], Field(min_length=1)]], AfterValidator(_plain)
    ] = {}


class Product(Values):
    """All combinations of problems, methods, settings, rates and seeds."""

    problems: list[ProblemName] = []
    methods: list[MethodName] = []


class Override(Values):
    """Other values for the runs of a problem, of a method, or of a method on a problem."""

    problem: ProblemName | None = None
    method: MethodName | None = None

    def matches(self, problem: str, method: str) -> bool:
        """Whether it speaks of the runs of this method on this problem."""
        return self.problem in (None, problem) and self.method in (None, method)


class Plan(Product):
    """A product, or several, with overrides."""

    about: str = ""
    runs: Annotated[list[Product], Field(max_length=MOST_TABLES)] = []
    override: Annotated[list[Override], Field(max_length=MOST_TABLES)] = []


KEYS = {"": Plan.model_fields, "runs": Product.model_fields, "override": Override.model_fields}


def list_plans() -> dict[str, str]:
    """The plans that come with the package, with what each is about.

    >>> "demo" in list_plans()
    True
    """
    files = sorted(_shipped().iterdir(), key=lambda file: file.name)
    plans = {f.name.removesuffix(".toml"): f for f in files if f.name.endswith(".toml")}
    return {name: tomllib.loads(f.read_text())["about"] for name, f in plans.items()}


def read_plan(name: str) -> Plan:
    """The plan in a file, or the one of that name that comes with the package.

    Raises:
        ValueError: There is no such plan, or it has a mistake; the message says where and what
            is allowed.
    """
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        try:
            text = read_file(path, MOST_BYTES).decode("utf-8")
        except OSError as error:
            raise ValueError(f"Cannot read the plan {path}: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise ValueError(f"Cannot read the plan {path}: it is not UTF-8 text.") from error
        return parse_plan(text, str(path))
    check_name(name, list_plans(), kind="plan")
    return parse_plan((_shipped() / f"{name}.toml").read_text(encoding="utf-8"), name)


def parse_plan(text: str, name: str = "plan") -> Plan:
    """The plan in a text.

    >>> plan = parse_plan("problems = []")
    >>> plan.seeds, plan.rates
    ([0], [None])
    """
    try:
        plan = Plan.model_validate(tomllib.loads(text))
    except ValidationError as error:
        told = itertools.islice(explain(error, text, name, KEYS), MOST_MISTAKES)
        raise ValueError("\n".join(told)) from error
    except (ValueError, RecursionError) as error:  # of tomllib, not all of its own kind
        raise ValueError(f"{name}: not TOML: {error}.") from error
    _check_count(plan, name)
    mistakes = [*_idle_overrides(plan), *_wrong_settings(plan)]
    if mistakes:
        lines = (f"{name}, line {find_line(text, place)}: {said}" for place, said in mistakes)
        raise ValueError("\n".join(lines))
    return plan


def list_runs(plan: Plan) -> list[Run]:
    r"""Every run of the plan, each once, in the plan's order.

    >>> text = 'problems = ["digits_mlp"]\nmethods = ["sgd"]\nrates = [0.1]\nseeds = [0, 1]'
    >>> [(run.rate, run.seed) for run in list_runs(parse_plan(text))]
    [(0.1, 0), (0.1, 1)]

    Raises:
        ValueError: There are none.
    """
    found = {run.key: run for run in _all_runs(plan)}
    if not found:
        raise ValueError("The plan has no runs: it needs `problems` and `methods`.")
    return list(found.values())


def _all_runs(plan: Plan) -> Iterator[Run]:
    return itertools.chain.from_iterable(_combine(*pair) for pair in _all_pairs(plan))


def _all_pairs(plan: Plan) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The problems and methods of all products, each pair with what is said of it."""
    overrides = [(override, _said(override)) for override in plan.override]
    for product in (plan, *plan.runs):
        said = _said(plan), _said(product)
        both = said[0] | said[1]
        for problem, method in itertools.product(both.get("problems", ()), both.get("methods", ())):
            others = (values for o, values in overrides if o.matches(problem, method))
            yield problem, method, _merge([*said, *others])


def _check_count(plan: Plan, name: str) -> None:
    """Refuse a plan of more runs than anybody could make, before they are listed."""
    count = 0
    for _, _, values in _all_pairs(plan):
        count += _size(values)
        if count > MOST_RUNS:
            raise ValueError(
                f"{name}: the plan has {count:,} runs or more, and can have {MOST_RUNS:,}. "
                "Make several plans of it."
            )


def _size(values: Mapping[str, Any]) -> int:
    """How many runs the values are of a problem and a method."""
    choices = (*values["vary"].values(), values["rates"], values["seeds"])
    return math.prod(len(choice) for choice in choices)


def _idle_overrides(plan: Plan) -> Iterator[tuple[Place, str]]:
    """Overrides that no run matches: where they are, and what they could have meant."""
    pairs = dict.fromkeys((run.problem, run.method) for run in _all_runs(plan))
    for index, override in enumerate(plan.override):
        if pairs and not any(override.matches(*pair) for pair in pairs):
            yield ("override", index), _explain_idle(override, pairs)


def _explain_idle(override: Override, pairs: Iterable[tuple[str, str]]) -> str:
    problems, methods = (tuple(dict.fromkeys(names)) for names in zip(*pairs, strict=True))
    try:
        check_name(override.problem or problems[0], problems, kind="problem among the plan's runs")
        check_name(override.method or methods[0], methods, kind="method among the plan's runs")
    except ValueError as error:
        return f"this override matches no run: {error}"
    return f"this override matches no run: none is of {override.method} on {override.problem}."


def _wrong_settings(plan: Plan) -> Iterator[tuple[Place, str]]:
    """Settings that a method does not take, each once."""
    kinds = {(run.method, json.dumps(run.settings)): run for run in _all_runs(plan)}
    faults = (find_fault(METHODS[run.method], run.settings) for run in kinds.values())
    for fault in dict.fromkeys(fault for fault in faults if fault is not None):
        yield (fault.setting,), fault.message


def _combine(problem: str, method: str, values: Mapping[str, Any]) -> Iterator[Run]:
    epochs = values["epochs"] or PROBLEMS[problem].epochs
    batch_size = values["batch_size"] or PROBLEMS[problem].batch_size
    names, choices = values["vary"].keys(), values["vary"].values()
    rates = [_resolve_rate(rate, method) for rate in values["rates"]]
    settings = {**METHODS[method].defaults, **values["settings"]}
    for choice, rate, seed in itertools.product(
        itertools.product(*choices), rates, values["seeds"]
    ):
        yield Run(
            problem,
            method,
            rate,
            seed,
            epochs,
            values["subset"],
            batch_size,
            values["evaluation"],
            {**settings, **dict(zip(names, choice, strict=True))},
        )


def _resolve_rate(rate: float | None, method: str) -> float | None:
    """The rate as it will be used; None for a method that has none, whatever the plan says."""
    has_none = METHODS[method].rate is None
    return None if has_none else METHODS[method].default_rate if rate is None else rate


def _merge(layers: list[dict[str, Any]]) -> dict[str, Any]:
    """What the last layer that says something says; settings add up."""
    merged = Values().model_dump()
    for layer in layers:
        said = {k: v for k, v in layer.items() if k in merged}
        for key in ("settings", "vary"):
            said[key] = {**merged[key], **said.get(key, {})}
        merged |= said
    return merged


def _said(layer: Values) -> dict[str, Any]:
    return layer.model_dump(exclude_unset=True)


def _shipped() -> Any:
    return resources.files(__package__)
