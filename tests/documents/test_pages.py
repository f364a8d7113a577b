"""What the documents point at exists, and what they show can be seen."""

import re
import unicodedata

import pytest

from .pages import PAGES, ROOT, blocks_of, read

LANGUAGES = {"python", "console", "bash", "toml", "text", "diff"}
COLUMNS = 100  # docs/width.css makes room for them
NOTEBOOKS = [path.stem for path in (ROOT / "docs").glob("*.ipynb")]  # each becomes a page
LINK = re.compile(r"(?<!\\)\[[^\]]*\]\(([^)\s]+)\)")


def prose_of(page: str) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", read(page), flags=re.DOTALL | re.MULTILINE)


def anchors_of(page: str) -> set[str]:
    """The anchors of a page's headings, as mkdocs makes them."""
    return {anchor(title) for title in re.findall(r"^#+ (.+)$", prose_of(page), flags=re.MULTILINE)}


def anchor(title: str) -> str:
    plain = unicodedata.normalize("NFKD", title.replace("`", "")).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_a_heading_in_it(page: str) -> None:
    for link in LINK.findall(prose_of(page)):
        if link.startswith(("http://", "https://")):
            continue
        path, _, fragment = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists() or target.stem in NOTEBOOKS, f"{page}: {link}"
        if fragment:
            name = target.resolve().relative_to(ROOT.resolve()).as_posix()
            assert fragment in anchors_of(name), f"{page}: {link}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_a_page_of_the_site_links_to_nothing_outside_it(page: str) -> None:
    for link in LINK.findall(prose_of(page)):
        assert not link.startswith("../"), f"{page}: {link}: mkdocs does not publish it"


def test_every_page_is_in_the_menu() -> None:
    menu = set(re.findall(r"(\S+\.md)$", read("mkdocs.yml"), flags=re.MULTILINE))
    made = {f"docs/{name}.md" for name in NOTEBOOKS}
    pages = {page for page in PAGES if page.startswith("docs/")}
    assert {f"docs/{name}" for name in menu} == pages | made


def test_the_first_page_has_at_most_a_hundred_lines() -> None:
    assert len(read("README.md").splitlines()) <= 100


def test_the_home_page_works_without_the_readme() -> None:
    links = LINK.findall(prose_of("docs/index.md"))
    assert {"first-training.md", "reference.md", "comparisons.md", "faq.md"} <= set(links)
    assert not any("README" in link for link in links)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_its_language_and_fits_the_page(page: str) -> None:
    for block in blocks_of(page):
        assert block.language in LANGUAGES, f"{block}: one of {sorted(LANGUAGES)}"
        assert max(map(len, block.text.splitlines())) <= COLUMNS, f"{block} is wider than the page"


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "figures").rglob("*.svg")), ids=lambda p: p.name
)
def test_a_figure_reads_in_light_and_dark(path) -> None:
    """It brings its own ground, or knows both modes, or has a twin for the other mode."""
    text = path.read_text(encoding="utf-8")
    stem, _, mode = path.stem.rpartition("-")
    if mode in ("light", "dark"):
        other = {"light": "dark", "dark": "light"}[mode]
        assert path.with_stem(f"{stem}-{other}").exists()
        return
    first_patch = text.partition('id="patch_1"')[2].partition("</g>")[0]
    assert "prefers-color-scheme" in text or "fill: #ffffff" in first_patch


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_a_page_names_exists(page: str) -> None:
    named = r"`((?:src|tests|docs|benchmarks|examples)/[\w./-]+|\w+\.md)`"
    for path in re.findall(named, read(page)):
        places = (ROOT / path, ROOT / "docs" / path)
        assert any(place.exists() for place in places), f"{page}: {path}"


@pytest.mark.parametrize("page", PAGES)
def test_every_module_that_a_page_names_exists(page: str) -> None:
    for name in re.findall(r"`probstep\.([a-z_.]+)`", read(page)):
        path = ROOT / "src" / "probstep" / name.replace(".", "/")
        parent = path.parent
        is_name = any(
            re.search(rf"\b{path.name}\b", place.read_text(encoding="utf-8"))
            for place in (parent.with_suffix(".py"), parent / "__init__.py")
            if place.exists()
        )
        assert path.is_dir() or path.with_suffix(".py").exists() or is_name, f"{page}: {name}"


def test_the_page_on_cost_contains_the_record_of_its_benchmark() -> None:
    assert read("benchmarks/records/overhead.md") in read("docs/cost.md")
