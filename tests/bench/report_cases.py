"""Records made up for the report: each run ends where its case says."""

from probstep.bench.records import Record, Run, encode_record
from probstep.bench.report.numbers.cells import make_cells
from probstep.bench.report.numbers.histories import make_history

RATES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)


def make_run(problem="digits_mlp", method="sgd", rate=0.1, seed=0, epochs=4, **values):
    return Run(problem, method, rate, seed, epochs, **values)


def make_records(run, loss=0.5, accuracy=0.9, status="done", passes=1.0, reason=None):
    """A run that goes from a loss of 2 to its end in equal steps."""
    records = []
    for epoch in range(run.epochs + 1):
        share = epoch / run.epochs
        is_last = epoch == run.epochs
        is_lost = is_last and status != "done"
        records.append(
            Record(
                run=run,
                epoch=epoch,
                status=status if is_last else "running",
                reason=reason if is_last else None,
                train_loss=None if is_lost else 2 + share * (loss - 2),
                train_accuracy=None if is_lost else share * accuracy,
                test_loss=None if is_lost else 2 + share * (loss - 2),
                test_accuracy=None if is_lost else share * accuracy,
                effective_rate=run.rate,
                steps=10 * epoch,
                forward_passes=round(10 * epoch * passes),
                time={"training_seconds": 0.5 * epoch * passes},
            )
        )
    return records


def make_sweep(problem="digits_mlp", rates=RATES):
    """SGD that depends on its rate, both rules around it, one of each rival."""
    runs = []
    for i, rate in enumerate(rates):
        runs.append(make_records(make_run(problem, "sgd", rate), 2 / (i + 1), 0.15 * (i + 1)))
        runs.append(make_records(make_run(problem, "probstep_sgd", rate), 0.3, 0.9, passes=2))
        runs.append(make_records(make_run(problem, "robust_sgd", rate), 0.32, 0.88, passes=1.1))
        runs.append(make_records(make_run(problem, "sgd_hd", rate), 1.0, 0.5))
    lost = make_run(problem, "adam", 1.0)
    runs.append(make_records(lost, status="diverged", reason="the training loss was not finite"))
    settings = {"betas": [0.5, 0.999]}
    runs.append(make_records(make_run(problem, "probstep_adam", 1.0, settings=settings)))
    runs.append(make_records(make_run(problem, "l4_adam", 0.15)))
    runs.append(make_records(make_run(problem, "l4_adam", 0.25)))
    return runs


def cells_of(runs):
    return make_cells(make_history(records) for records in runs)


def write_records(out, runs):
    (out / "records").mkdir(parents=True, exist_ok=True)
    for records in runs:
        lines = "".join(encode_record(record) + "\n" for record in records)
        (out / "records" / f"{records[0].run.key}.jsonl").write_text(lines)
    return out
