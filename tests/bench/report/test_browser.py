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


@pytest.fixture(params=["light-1800", "dark-390"])
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
    assert page.locator("figure").count() == 8
    inner, wide = page.evaluate("[innerWidth, document.documentElement.scrollWidth]")
    assert wide <= inner
    for figure in page.locator("figure").all():
        panels = [panel.bounding_box() for panel in figure.locator("svg.figure").all()]
        assert all(150 < panel["width"] <= inner for panel in panels)
        assert len({round(panel["width"]) for panel in panels}) == 1
        assert all(panel["x"] + panel["width"] <= inner for panel in panels)


def test_panels_stand_side_by_side_as_far_as_there_is_room(page):
    panels = page.locator("#grid-train-loss .row").first.locator("svg.figure").all()
    tops = [round(panel.bounding_box()["y"]) for panel in panels]
    wide = page.evaluate("innerWidth") > 1000
    assert max(tops.count(top) for top in tops) >= (7 if wide else 2)


def test_tables_fit_the_screen_and_a_phone_says_what_each_value_is(page):
    inner = page.evaluate("innerWidth")
    for table in page.locator("table").all():
        assert table.bounding_box()["width"] <= inner
    said = page.evaluate(
        "getComputedStyle(document.querySelector('#best-fixed td:nth-child(3)'), '::before').content"
    )
    assert said == ('"best fixed rate"' if inner < 640 else "none")


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
    figure = page.locator("#sensitivity-train-loss svg.figure").first
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
