"""The command `probstep`: parses what is typed and calls one function."""

import enum
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.markup import escape

import probstep
from probstep.bench import commands
from probstep.bench.plans import Source, add_source, list_plans, list_runs, read_plan, read_source
from probstep.bench.runs.backends import Workers
from probstep.bench.runs.runner import Setup
from probstep.bench.texts import printable

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"probstep {probstep.__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and stop."
        ),
    ] = False,
) -> None:
    """Measure learning-rate methods: plan runs, make them, look at them; and look at your own."""


class Backend(enum.StrEnum):
    """Who can do the runs."""

    serial = "serial"
    processes = "processes"
    ray = "ray"


class Kind(enum.StrEnum):
    """What can be listed."""

    problems = "problems"
    methods = "methods"
    plans = "plans"


def _complete_plan(start: str) -> list[str]:
    return [name for name in list_plans() if name.startswith(start)]


PlanName = Annotated[
    str,
    typer.Argument(
        metavar="PLAN",
        help="A plan's TOML file, or the name of one that comes along: `probstep list plans`.",
        autocompletion=_complete_plan,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="The output directory; `runs/PLAN` if not given. Runs that are recorded there "
        "are not made again, unfinished ones continue where they stopped.",
        file_okay=False,
    ),
]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="How many runs at a time.")]
BackendName = Annotated[
    Backend | None,
    typer.Option(help="Who does the runs. Without it: serial for one job, processes for more."),
]
Address = Annotated[
    str | None,
    typer.Option(help='A Ray cluster to use, or "auto". Its processors decide how many jobs run.'),
]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Where the data sets are.", envvar="PROBSTEP_DATA", file_okay=False),
]
Imports = Annotated[
    list[Path] | None,
    typer.Option(
        "--import",
        metavar="FILE.py",
        help="A Python file with your own problems or methods, in tables PROBLEMS and METHODS. "
        "It is executed. Can be given several times.",
    ),
]
Threads = Annotated[
    int, typer.Option(min=1, help="Torch threads per run. The last digits depend on it.")
]
Device = Annotated[
    str,
    typer.Option(
        help="Where the nets are trained: cpu, cuda, cuda:1. On Ray, cuda is a GPU per run."
    ),
]
RecordedFile = Annotated[
    Path | None,
    typer.Option(
        help="A file of `probstep export --curves`: runs that are in it are not made again.",
        exists=True,
        dir_okay=False,
    ),
]
Retry = Annotated[bool, typer.Option("--retry", help="Make failed runs again.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Count the runs and estimate their time, make none.")
]
AsJson = Annotated[bool, typer.Option("--json", help="A line of JSON per row instead of a table.")]


@app.command()
def run(
    plan: PlanName,
    out: Out = None,
    jobs: Jobs = 1,
    backend: BackendName = None,
    address: Address = None,
    data_dir: DataDir = None,
    imports: Imports = None,
    device: Device = "cpu",
    threads: Threads = 1,
    recorded: RecordedFile = None,
    retry: Retry = False,
    dry_run: DryRun = False,
) -> None:
    """Make the runs of PLAN, or those that are still missing, and record every epoch.

    Stop it at any time (Ctrl-C, even kill -9): the same command continues where it stopped.
    Several of them may work on one output directory. Where the output is no terminal, each
    finished run is one line of JSON. The exit code is 0 if no run failed, 1 if one did or
    something was wrong, 130 if interrupted.
    """
    with _plain_errors(), _interrupted_by_sigterm():
        sources = _add_imports(imports)
        runs = list_runs(read_plan(plan))
        setup = Setup(
            out=out or _default_out(plan),
            backend=backend or _default_backend(jobs, address),
            workers=Workers(jobs, address, has_gpu=device.startswith("cuda")),
            data_dir=data_dir,
            device=device,
            threads=threads,
            sources=sources,
            retry=retry,
        )
        if address is None:
            _refuse_missing(device)
        console = Console()
        if recorded is not None:
            runs = commands.without_recorded(runs, recorded, console, retry=retry)
        command = commands.forecast_plan if dry_run else commands.run_plan
        raise typer.Exit(command(runs, setup, console))


@app.command("list")
def list_(
    kind: Annotated[Kind, typer.Argument(help="What to list.")], imports: Imports = None
) -> None:
    """List the problems, the methods or the plans that there are."""
    with _plain_errors():
        _add_imports(imports)
        raise typer.Exit(commands.list_names(kind, _wide_console()))


@app.command()
def show(
    out: Annotated[Path, typer.Argument(help="The output directory of `probstep run`.")],
    as_json: AsJson = False,
) -> None:
    """Show how far the runs in an output directory are, also while they are being made.

    The scores are those of the last epoch, the mean over the seeds.
    """
    with _plain_errors():
        raise typer.Exit(commands.show_records(out, _wide_console(), as_json=as_json))


@app.command()
def report(
    out: Annotated[Path, typer.Argument(help="The output directory of `probstep run`.")],
    to: Annotated[
        Path | None,
        typer.Option(help="Where the report goes; `OUT/report` if not given.", file_okay=False),
    ] = None,
) -> None:
    """Make one page of figures and tables of the records in an output directory.

    The page needs no network and no other file; its figures are also there as PNG and PDF. It
    can be made while the runs are being made: it shows what is recorded.
    """
    with _plain_errors():
        raise typer.Exit(commands.report_records(out, to, Console(soft_wrap=True)))


@app.command()
def live(
    out: Annotated[Path, typer.Argument(help="The output directory of `probstep run`.")],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 for one that is free.")
    ] = 0,
    in_browser: Annotated[
        bool, typer.Option("--open", help="Open the page in your browser.")
    ] = False,
) -> None:
    """Serve a page that follows the runs in an output directory while they are made.

    It shows how far they are, which failed and why, what is next, and the report so far. Only
    this machine can reach it (127.0.0.1), and it changes nothing. Ctrl-C ends it.
    """
    with _plain_errors(), _interrupted_by_sigterm():
        console = Console(soft_wrap=True)
        raise typer.Exit(commands.follow_records(out, port, console, in_browser=in_browser))


@app.command()
def export(
    out: Annotated[Path, typer.Argument(help="The output directory of `probstep run`.")],
    parquet: Annotated[
        bool, typer.Option("--parquet", help="A row per epoch, as a Parquet file.")
    ] = False,
    lines: Annotated[
        bool, typer.Option("--lines", help="The same rows, a line of JSON each.")
    ] = False,
    curves: Annotated[
        bool, typer.Option("--curves", help="A line of JSON per ended run, with its curves.")
    ] = False,
    add: Annotated[
        bool,
        typer.Option(
            "--add", help="With --curves: the runs in the file stay, unless OUT has them, too."
        ),
    ] = False,
    to: Annotated[
        Path | None,
        typer.Option(help="The file; `export.parquet` and the like in OUT if not given."),
    ] = None,
) -> None:
    """Write all records of an output directory into one file, for DuckDB, pandas or a repository.

    Rows are flat: settings and the like are texts of JSON, and every other column is a text or a
    number.
    """
    with _plain_errors():
        chosen = {"parquet": parquet, "lines": lines, "curves": curves}
        forms = [form for form, is_chosen in chosen.items() if is_chosen]
        if len(forms) != 1:
            raise ValueError("Say what to write: one of --parquet, --lines or --curves.")
        if add and not curves:
            raise ValueError("--add goes with --curves, whose lines are runs.")
        form = "added curves" if add else forms[0]
        raise typer.Exit(commands.export_records(out, form, to, Console(soft_wrap=True)))


@app.command()
def plot(
    checkpoint: Annotated[
        Path, typer.Argument(help="A file of `torch.save` that holds a ProbStep's `state_dict()`.")
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            help="The file: its ending, .html, .png or .svg, says what it is. CHECKPOINT.html if "
            "not given.",
            dir_okay=False,
        ),
    ] = None,
) -> None:
    """Draw the training that a checkpoint remembers: loss, rate, what limited it, probes, events.

    The checkpoint is read with `weights_only=True`, so that nothing in it is executed.
    """
    with _plain_errors():
        raise typer.Exit(commands.plot_checkpoint(checkpoint, to, Console(soft_wrap=True)))


@app.command()
def collect(
    out: Annotated[Path, typer.Argument(help="The output directory of `probstep run`.")],
    to: Annotated[Path, typer.Option(help="The file that is written.", dir_okay=False)],
) -> None:
    """Write a line per finished run, with its curves: small enough to keep in a repository."""
    with _plain_errors():
        raise typer.Exit(commands.collect_records(out, to, Console(soft_wrap=True)))


@app.command()
def page(
    name: Annotated[str, typer.Argument(help="The page, such as `robust`.")],
    records: Annotated[Path, typer.Option(help="Where the records are.", file_okay=False)] = Path(
        "benchmarks", "records"
    ),
    docs: Annotated[Path, typer.Option(help="Where the page goes.", file_okay=False)] = Path(
        "docs"
    ),
) -> None:
    """Make a page of the documentation, and its figures, from the records in the repository."""
    with _plain_errors():
        raise typer.Exit(commands.publish_page(name, records, docs, Console(soft_wrap=True)))


def _add_imports(paths: list[Path] | None) -> tuple[Source, ...]:
    sources = tuple(read_source(path) for path in paths or ())
    for source in sources:
        add_source(source)
    return sources


def _default_out(plan: str) -> Path:
    """A directory in `runs/` with the plan's name, which must not lead out of it.

    >>> _default_out("plans/mine.toml").as_posix()
    'runs/mine'
    """
    name = Path(plan).stem
    if name in ("", ".", ".."):
        raise ValueError(f"{plan} does not name an output directory. Name one with --out.")
    return Path("runs", name)


def _default_backend(jobs: int, address: str | None) -> str:
    if address is not None:
        return "ray"
    return "serial" if jobs == 1 else "processes"


def _wide_console() -> Console:
    """A table in a file or a pipe is not cut to the width of a terminal that is not there."""
    console = Console()
    return console if console.is_terminal else Console(width=200)


def _refuse_missing(device: str) -> None:
    """Refuse a device that torch does not have here, before any run fails on it.

    Raises:
        ValueError: There is none.
    """
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch has both for it
        reason = str(error).splitlines()[0]
        raise ValueError(f"--device {device} is not to be had here: {reason}") from error


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Tell what a person can put right in a sentence, without a traceback."""
    try:
        yield
    except (ValueError, OSError, ModuleNotFoundError) as error:
        Console(stderr=True, soft_wrap=True).print("[red]Error:[/red]", _tell(error))
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        text = "Interrupted. What was recorded is kept; the same command continues."
        Console(stderr=True).print(text)
        raise typer.Exit(130) from None


def _tell(error: Exception) -> str:
    """What the error says, line by line, and of which file."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return "\n".join(escape(printable(line)) for line in text.splitlines())


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """A polite request to end is treated like Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
