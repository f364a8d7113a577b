"""In a browser the picture of a run fits the screen, loads nothing, and follows the reader's mode."""

import shutil
from pathlib import Path

import pytest

import probstep

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no browser: `apt-get install chromium` brings one"
)
RECORD = Path(__file__).parents[1] / "benchmarks" / "records" / "history.pt"
PAGES = {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 28)"}


@pytest.mark.parametrize(("mode", "width"), [("light", 1400), ("dark", 390)])
def test_one_of_two_pictures_is_shown_and_fits(tmp_path, mode, width):
    path = probstep.plot(RECORD).save(tmp_path / "run.html")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_context(
            color_scheme=mode, viewport={"width": width, "height": 900}
        ).new_page()
        said = []
        page.on("console", lambda message: said.append(message.text))
        page.on("request", lambda asked: asked.url.startswith("file:") or said.append(asked.url))
        page.goto(path.as_uri())
        inner, wide = page.evaluate("[innerWidth, document.documentElement.scrollWidth]")
        shown = [svg.bounding_box() for svg in page.locator("svg[role=img]").all()]
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        browser.close()
    assert said == []
    assert wide <= inner
    (box,) = [box for box in shown if box is not None]
    assert 0.8 * min(inner, 1200) < box["width"] <= inner
    assert ground == PAGES[mode]
