"""The page as a file: whole, self-contained, and safe whatever the records say."""

import json
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from probstep.bench.cli import app
from probstep.bench.records import Record, encode_record
from probstep.bench.report.build import make_report

from ..report_cases import make_records, make_run, make_sweep, write_records

EVIL = (
    '"><script>alert(1)</script>',
    "</title></script><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "$\\frac{x$ {0} %s {policy}",
    "line\nbreak \x1b[31m \u202e \ud800",
)


class Elements(HTMLParser):
    """All elements of a page with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    out = write_records(tmp_path_factory.mktemp("sweep"), make_sweep())
    return make_report(out)


def test_the_page_has_its_figures_as_svg_png_and_pdf(sweep):
    page = sweep.page.read_text()
    slugs = {path.stem for path in (sweep.page.parent / "figures").iterdir()}
    assert {
        "sensitivity-test-accuracy",
        "sensitivity-train-loss",
        "grid-train-accuracy",
        "grid-train-loss",
        "grid-test-accuracy",
        "grid-effective-rate",
        "profiles",
        "inference",
    } <= slugs
    for slug in slugs:
        assert f'<section id="{slug}">' in page
        png, pdf = (sweep.page.parent / "figures" / f"{slug}{s}" for s in (".png", ".pdf"))
        assert png.read_bytes().startswith(b"\x89PNG")
        assert pdf.read_bytes().startswith(b"%PDF")


def test_the_page_needs_nothing_from_elsewhere(sweep):
    elements = Elements(sweep.page.read_text()).found
    links = [v for _, a in elements for k, v in a.items() if k in ("src", "href", "xlink:href")]
    assert links
    assert all(link.startswith(("#", "figures/")) for link in links)
    assert "@import" not in sweep.page.read_text()
    assert "url(" not in sweep.page.read_text()


def evil_runs(evil):
    """The text wherever a record can carry one."""
    for rate, status in ((0.1, "done"), (1.0, "diverged")):
        run = make_run(evil, evil, rate, settings={evil: evil})
        yield make_records(run, reason=evil, status=status)
        yield make_records(make_run(evil, "sgd", rate))
    yield make_records(make_run(evil, "adam", 1.0, settings={"x": evil}))


def test_text_in_a_strangers_records_cannot_inject_script(tmp_path):
    runs = [records for evil in EVIL for records in evil_runs(evil)]
    report = make_report(write_records(tmp_path, runs))
    page = report.page.read_text(encoding="utf-8")
    elements = Elements(page).found
    assert [tag for tag, _ in elements].count("script") == 1
    assert not [tag for tag, _ in elements if tag in ("img", "iframe", "object", "embed", "base")]
    assert not [name for _, attrs in elements for name in attrs if name.startswith("on")]
    [policy] = [a["content"] for t, a in elements if t == "meta" and "http-equiv" in a]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")


def test_odd_numbers_in_a_strangers_records_do_no_harm(tmp_path):
    [*first, last] = make_records(make_run(rate=-3.0, seed=10**30, epochs=2))
    odd = json.loads(encode_record(last))
    odd |= {
        "train_loss": 1e308,
        "test_accuracy": -5,
        "steps": 10**400,
        "time": {"training_seconds": []},
    }
    text = "".join(encode_record(record) + "\n" for record in first) + json.dumps(odd) + "\n"
    write_records(tmp_path, [make_records(make_run(method="adam", rate=0.0, epochs=2))])
    (tmp_path / "records" / "odd.jsonl").write_text(text)
    assert "2 runs of 1 problem by 2 methods." in make_report(tmp_path).page.read_text()


@pytest.mark.parametrize("number", [-1e300, 0.0, 1.7e308])
def test_forged_numbers_break_nothing(number, tmp_path):
    runs = []
    for method in ("sgd", "robust_sgd", "probstep_sgd"):
        for rate in (0.1, 1.0):
            for seed in (0, 1):
                run = make_run(method=method, rate=rate, seed=seed)
                forged = (method == "robust_sgd", rate, seed) == (True, 1.0, 0)
                runs.append(make_records(run, number if forged else 0.5))
    runs.append(make_records(make_run("regression", rate=1.0), number))
    page = make_report(write_records(tmp_path, runs)).page.read_text()
    assert "13 runs of 2 problems by 3 methods." in page
    assert "nan" not in page.split("<main>")[1].split("<script>")[0]
    assert CliRunner().invoke(app, ["show", str(tmp_path)]).exit_code == 0


def test_records_of_unfinished_runs_are_shown_as_far_as_they_go(tmp_path):
    records = make_records(make_run(epochs=4))[:3]
    begun = Record(run=make_run(rate=1.0), epoch=0, status="interrupted")
    page = make_report(write_records(tmp_path, [records, [begun]])).page.read_text()
    assert "1 interrupted, 1 running" in page


def test_the_command_says_what_matters_and_where_the_page_is(tmp_path):
    write_records(tmp_path / "out", make_sweep(rates=(1e-5, 1.0)))
    words = ["report", str(tmp_path / "out"), "--to", str(tmp_path / "page")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0
    default, paper, fixed, cost, where = result.stdout.splitlines()
    assert default.startswith("The default rule: from initial rates of 1e-5 to 1")
    assert paper.startswith("The paper's rule:")
    assert fixed.startswith("Fixed rates: from initial rates of 1e-5 to 1")
    assert cost.startswith("The cost:")
    assert where == f"Report: {tmp_path / 'page' / 'report.html'}"


def test_a_directory_without_records_is_told_without_a_traceback(tmp_path):
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 1
    assert "There are no records in" in result.stderr
