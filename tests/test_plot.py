"""probstep.plot draws an optimizer, a history or a checkpoint: SVG, PNG, or one page that is whole."""

import builtins
import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import torch
from torch import nn

import probstep
from probstep.history import EVENTS, LIMITS, Ledger
from probstep.plotting.page import LIMITS_SAID
from probstep.plotting.portrait import LIMIT_COLOURS, draw

from .cases import batches, plain_network, step_with_closure


@pytest.fixture(scope="module")
def opt():
    torch.manual_seed(0)
    model = plain_network()
    opt = probstep.ProbStep(torch.optim.Adam(model.parameters(), lr=1e-6))
    for batch in batches(30):
        step_with_closure(opt, model, batch)
    return opt


def long_history(count=3000):
    """One with every limit and every event, losses of many magnitudes, and one that is none."""
    ledger = Ledger()
    for step in range(1, count + 1):
        ledger.limited(LIMITS[step * len(LIMITS) // (count + 1)])
        ledger.probes += step % 20 == 0
        ledger.open(step, 1.0 + step / count, 1e-3)
        ledger.close(math.nan if step == count // 2 else 10.0 ** (-4 * step / count))
    for number, name in enumerate(EVENTS):
        ledger.add(name, 100 * number + 1, 2.0)
    return ledger.history()


HISTORIES = {
    "none": probstep.History(),
    "long": long_history(),
    "one step": long_history(1),
    "two steps": long_history(2),
}


class Outline(HTMLParser):
    """The elements of a page, and all that it would load."""

    def __init__(self):
        super().__init__()
        self.tags, self.loads, self.open = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in ("meta", "path", "rect", "circle"):
            self.open.append(tag)
        self.loads += [v for k, v in attributes if k in ("src", "href", "srcset", "data")]

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", HISTORIES)
def test_a_page_is_whole_and_loads_nothing(name):
    page = probstep.plot(HISTORIES[name]).html()
    outline = Outline()
    outline.feed(page)
    assert outline.open == []
    assert outline.loads == []
    assert "url(" not in page
    assert "script" not in outline.tags
    assert outline.tags.count("figure") == 1
    assert "prefers-color-scheme: dark" in page
    assert 'class="wide"' in page
    assert 'class="narrow"' in page


@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize("width", [380.0, 1100.0])
def test_every_shape_lies_inside_the_picture(name, width):
    scene = draw(HISTORIES[name], width)
    assert scene.width == width
    for shape in scene.shapes:
        points = getattr(shape, "points", None)
        for x, y in points if points is not None else [(shape.x, shape.y)]:
            assert 0 <= x <= width
            assert 0 <= y <= scene.height


def test_the_picture_shows_every_limit_and_every_event():
    history = HISTORIES["long"]
    texts = [shape.text for shape in draw(history).shapes if hasattr(shape, "text")]
    for limit in LIMITS[1:]:
        assert any(text.startswith(f"{limit} ") for text in texts)
    assert set(EVENTS) <= set(texts)
    page = probstep.plot(history).html()
    for event in history.events:
        assert f"<td>{event.name}</td>" in page


def test_every_limit_has_a_colour_of_its_own_and_a_meaning():
    assert list(LIMIT_COLOURS) == list(LIMITS)
    assert len(set(LIMIT_COLOURS.values())) == len(LIMITS)
    assert set(LIMITS_SAID) == set(LIMITS) - {""}


def test_svg_is_xml_of_its_own(opt):
    root = ET.fromstring(probstep.plot(opt).svg())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert float(root.get("width")) == 1100


def test_a_notebook_shows_the_picture_and_a_terminal_the_summary(opt):
    picture = probstep.plot(opt)
    assert picture._repr_html_() == picture.svg()
    assert str(picture) == str(opt.history())


def test_all_sources_give_the_same_picture(opt, tmp_path):
    state = opt.state_dict()
    torch.save({"epoch": 3, "optimizer_states": [state]}, tmp_path / "c.pt")
    sources = [
        opt.history(),
        state,
        {"a": {"b": [state]}},
        tmp_path / "c.pt",
        str(tmp_path / "c.pt"),
    ]
    expected = probstep.plot(opt).html()
    assert all(probstep.plot(source).html() == expected for source in sources)


@pytest.mark.parametrize("kind", ["png", "svg", "html", "PNG"])
def test_the_ending_of_the_name_says_what_is_written(opt, tmp_path, kind):
    if kind.lower() == "png":
        pytest.importorskip("matplotlib")
    path = tmp_path / f"run.{kind}"
    probstep.plot(opt, to=path)
    beginnings = {"png": b"\x89PNG", "svg": b"<svg", "html": b"<!doctype html>"}
    assert path.read_bytes().startswith(beginnings[kind.lower()])


def test_the_picture_is_the_same_every_time(opt):
    pytest.importorskip("matplotlib")
    assert probstep.plot(opt).png() == probstep.plot(opt).png()
    assert probstep.plot(opt).html() == probstep.plot(opt).html()


def test_another_ending_is_refused_with_those_that_are_known(opt, tmp_path):
    with pytest.raises(
        ValueError, match=re.escape("run.gif: the name must end with .png, .svg, .html")
    ):
        probstep.plot(opt, to=tmp_path / "run.gif")


def test_without_matplotlib_png_names_the_extra_and_html_is_written(opt, tmp_path, monkeypatch):
    import_ = builtins.__import__

    def hidden(name, *args, **kwargs):
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return import_(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", hidden)
    monkeypatch.delitem(sys.modules, "probstep.drawing.paint", raising=False)
    with pytest.raises(ImportError, match=re.escape("pip install 'probstep[plot]'")):
        probstep.plot(opt, to=tmp_path / "run.png")
    probstep.plot(opt, to=tmp_path / "run.html")
    assert [path.name for path in tmp_path.iterdir()] == ["run.html"]


class Stranger:
    """Not what torch.load(weights_only=True) takes."""


def not_checkpoints(folder, opt):
    """Files that are no checkpoint with one history, and what is said of each."""
    (folder / "text.pt").write_text("hello", encoding="utf-8")
    (folder / "empty.pt").write_bytes(b"")
    torch.save({"model": nn.Linear(2, 1).state_dict()}, folder / "weights.pt")
    torch.save(Stranger(), folder / "object.pt")
    torch.save([opt.state_dict(), opt.state_dict()], folder / "two.pt")
    old = opt.state_dict()
    old["param_groups"][0]["probstep"].pop("history")
    torch.save(old, folder / "old.pt")
    damaged = opt.state_dict()
    damaged["param_groups"][0]["probstep"]["history"] = torch.zeros(3)
    torch.save(damaged, folder / "damaged.pt")
    (folder / "folder.pt").mkdir()
    return {
        "text.pt": "is no checkpoint that torch.load",
        "empty.pt": "is no checkpoint that torch.load",
        "object.pt": "is no checkpoint that torch.load",
        "weights.pt": "holds no history of a ProbStep",
        "old.pt": "holds no history of a ProbStep",
        "two.pt": "holds the histories of 2 optimizers",
        "damaged.pt": "holds a history that cannot be read",
        "folder.pt": "is a directory",
        "missing.pt": "There is no file",
    }


def test_what_is_no_checkpoint_with_a_history_is_named(opt, tmp_path):
    for name, said in not_checkpoints(tmp_path, opt).items():
        with pytest.raises((ValueError, OSError), match=said) as caught:
            probstep.plot(tmp_path / name)
        assert name in str(caught.value)


def test_what_has_no_history_is_refused():
    with pytest.raises(TypeError, match="A SGD has no history"):
        probstep.plot(torch.optim.SGD([nn.Parameter(torch.zeros(1))]))


# The page of the documentation

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "records" / "history.pt"


def test_the_picture_in_the_documentation_is_made_of_the_record():
    figure = ROOT / "docs" / "figures" / "history.svg"
    assert figure.read_text("utf-8") == probstep.plot(RECORD).svg()


def test_the_summary_in_the_documentation_is_that_of_the_record():
    page = (ROOT / "docs" / "history.md").read_text("utf-8")
    assert probstep.plot(RECORD).history.summary() in page


# The command


@pytest.fixture
def command():
    testing = pytest.importorskip("typer.testing", reason="the command needs the bench's extra")
    cli = pytest.importorskip("probstep.bench.cli")
    return lambda *words: testing.CliRunner().invoke(cli.app, ["plot", *map(str, words)])


def test_the_command_writes_a_page_beside_the_checkpoint_and_prints_the_summary(
    command, opt, tmp_path
):
    torch.save(opt.state_dict(), tmp_path / "c.pt")
    result = command(tmp_path / "c.pt")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "c.html").read_text("utf-8") == probstep.plot(opt).html()
    assert "30 steps" in result.output
    assert "Picture:" in result.output


def test_the_command_writes_where_it_is_told(command, opt, tmp_path):
    pytest.importorskip("matplotlib")
    torch.save(opt.state_dict(), tmp_path / "c.pt")
    assert command(tmp_path / "c.pt", "--to", tmp_path / "c.png").exit_code == 0
    assert (tmp_path / "c.png").read_bytes() == probstep.plot(opt).png()


def test_the_command_tells_mistakes_in_a_sentence(command, opt, tmp_path):
    for name, said in not_checkpoints(tmp_path, opt).items():
        result = command(tmp_path / name)
        assert result.exit_code == 1
        assert said in result.output
        assert "Traceback" not in result.output
    assert not list(tmp_path.glob("*.html"))
