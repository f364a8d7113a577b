"""The page in a real browser: it loads in silence, sorts, and answers the pointer."""

import shutil

import pytest

from probstep.bench.report.build import make_report

from ..report_cases import make_sweep, write_records

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no browser: `apt-get install chromium` brings one"
)
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    runs = [*make_sweep(), *make_sweep(EVIL, rates=(0.1, 1.0))]
    return make_report(write_records(tmp_path_factory.mktemp("browser"), runs))


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=["light-1400", "dark-390"])
def page(browser, report, request):
    """The page in both modes, wide and narrow; whatever it says on the console fails the test."""
    mode, width = request.param.split("-")
    size = {"width": int(width), "height": 900}
    context = browser.new_context(color_scheme=mode, viewport=size)
    page = context.new_page()
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append("a dialog") or dialog.dismiss())
    page.on("request", lambda asked: asked.url.startswith("file:") or said.append(asked.url))
    page.goto(report.page.as_uri())
    yield page
    context.close()
    assert said == []


def test_figures_are_there_and_the_page_is_not_wider_than_the_screen(page):
    assert page.locator("svg.figure").count() == 8
    for figure in page.locator("svg.figure").all():
        assert figure.bounding_box()["width"] > 250
    inner, wide = page.evaluate("[innerWidth, document.documentElement.scrollWidth]")
    assert wide <= inner


def test_the_page_follows_the_readers_mode(page):
    is_dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    ink = page.evaluate("getComputedStyle(document.querySelector('svg.figure text')).fill")
    brightness = [
        sum(map(int, c.split("(")[1].split(")")[0].split(","))) for c in (background, ink)
    ]
    assert (brightness[0] < brightness[1]) == is_dark


def test_a_click_on_a_heading_sorts_by_number_and_again_backwards(page):
    table = page.locator("#finals table")
    button = table.locator("th button", has_text="train loss")
    column = table.locator("th").all_text_contents().index("train loss") + 1
    for order in ("ascending", "descending"):
        button.click()
        cells = table.locator(f"tbody td:nth-child({column})").all_text_contents()
        values = [float(text) for text in cells if text != "–"]
        assert values == sorted(values, reverse=order == "descending")
        assert cells[len(values) :] == ["–"] * (len(cells) - len(values))
        assert button.locator("..").get_attribute("aria-sort") == order


def test_a_click_on_a_heading_sorts_texts(page):
    table = page.locator("#finals table")
    table.locator("th button", has_text="method").click()
    texts = table.locator("tbody td:nth-child(2)").all_text_contents()
    assert len(set(texts)) > 3
    assert texts == sorted(texts, key=lambda text: text.replace("_", " "))


def test_pointing_at_a_curve_shows_its_name_and_value(page):
    figure = page.locator("#sensitivity-train-loss svg.figure")
    point = figure.locator("circle[data-n=probstep_sgd]").first
    point.scroll_into_view_if_needed()
    point.hover(force=True)
    assert page.locator("#tip").is_visible()
    said = page.locator("#tip").text_content()
    assert said == "probstep_sgd: initial rate 0.1, final training loss 0.3"
    page.mouse.move(1, 1)
    assert page.locator("#tip").is_hidden()


def test_a_strangers_name_is_shown_as_it_is_and_does_nothing(page):
    assert page.locator("img").count() == 0
    assert page.locator("#finals td", has_text=EVIL).count() > 0
