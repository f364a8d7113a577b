"""The live page in a real browser: it follows the runs, and says so when it cannot."""

import shutil

import pytest

from probstep.bench.live import serve
from probstep.bench.records.planned import write_planned

from ..report_cases import make_records, make_run, write_records

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no browser: `apt-get install chromium` brings one"
)
EVIL = "<img src=x onerror=alert(1)>"
RUNS = [make_run(method=method, seed=seed) for seed in range(2) for method in ("sgd", EVIL)]
PATIENCE = 120_000  # milliseconds; what is awaited comes within seconds unless all cores are busy


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def out(tmp_path):
    write_planned(tmp_path, RUNS)
    return write_records(tmp_path, [make_records(RUNS[0]), make_records(RUNS[1])[:2]])


@pytest.fixture(params=["light-1400", "dark-390"])
def page(browser, request):
    """A page in both modes, wide and narrow; whatever it says on the console fails the test."""
    mode, width = request.param.split("-")
    context = browser.new_context(color_scheme=mode, viewport={"width": int(width), "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.said = []
    page.on("console", lambda message: page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("dialog", lambda dialog: page.said.append("a dialog") or dialog.dismiss())
    yield page
    context.close()


def test_the_page_follows_the_runs_shows_failures_and_what_is_next(page, out):
    with serve(out) as address:
        page.goto(address)
        assert "1 of 4 runs have ended" in page.locator("#progress").inner_text()
        assert page.locator("#next tr").count() == 3  # a heading and two runs
        assert page.locator("#running td").nth(1).inner_text() == EVIL
        write_records(out, [make_records(RUNS[1], status="failed", reason=f"because of {EVIL}")])
        page.get_by_text(f"failed: because of {EVIL}").wait_for()
        assert "2 of 4 runs have ended" in page.locator("#progress").inner_text()
        assert page.locator("progress").evaluate("bar => bar.value") == 0.5
        assert page.locator("img").count() == 0
        frame = page.frame_locator("iframe")
        frame.locator("svg.figure").first.wait_for()
        assert frame.locator("img").count() == 0
    assert page.said == []


def test_the_page_is_not_wider_than_the_screen(page, out):
    with serve(out) as address:
        page.goto(address)
        inner, wide = page.evaluate("[innerWidth, document.documentElement.scrollWidth]")
    assert wide <= inner


def test_the_page_says_that_the_server_has_ended(page, out):
    with serve(out) as address:
        page.goto(address)
        assert page.locator("#lost").is_hidden()
    page.locator("#lost").wait_for()


def test_a_page_from_elsewhere_learns_nothing(page, out, browser):
    with serve(out) as address:
        page.goto("data:text/html,<p>elsewhere</p>")
        outcome = page.evaluate(
            "address => fetch(address).then(() => 'read', () => 'refused')", f"{address}now"
        )
    assert outcome == "refused"
