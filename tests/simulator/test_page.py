"""The page of a report, and the document of all."""

import re
import xml.dom.minidom
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.simulator.scenarios import scenario, work_of

from regionquota.simulator.charts import transfers_chart
from regionquota.simulator.gallery import gallery
from regionquota.simulator.page import page
from regionquota.simulator.plots import TOP, WIDTH, clock, grouped, key
from regionquota.simulator.policies import play
from regionquota.simulator.report import Report, report

VOID = {"meta"}
ROOT = Path(__file__).parents[2]


class Tags(HTMLParser):
    """Checks that all are closed in order, and keeps what they refer to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.references += [value or "" for name, value in attrs if name in {"src", "href", "data", "action"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.open.pop()


@pytest.fixture(scope="module")
def found() -> Report:
    wanted = scenario(
        name="<b>&'\"",
        regions={f"r{number}": {} for number in range(10)},
        events=[
            {"what": "partition", "region": "r1", "at_s": 100, "until_s": 200},
            {"what": "coordinator_down", "at_s": 300},
            {"what": "weight", "region": "r2", "weight": 7, "at_s": 250},
        ],
        wait_s=1,
    )
    work = work_of(wanted)
    policies = ["oracle", "static", "periodic", "ours", "leases", "pull"]
    return report(wanted, work, {name: play(name, wanted, work) for name in policies}, policies)


def test_rules_for_regions_are_told_region_by_region() -> None:
    wanted = scenario(quota={"regions": {"eu": {"floor": 5, "weight": 200}, "us": {"cap": 9}}})
    work = work_of(wanted)
    drawn = page(report(wanted, work, {name: play(name, wanted, work) for name in ("oracle", "static")}, ["static"]))
    assert "<h2>By region</h2>" in drawn
    assert "(eu: weight 200, floor 5; us: cap 9). They bind ours and periodic; the others know none." in drawn


def test_the_page_needs_nothing_but_itself(found: Report) -> None:
    tags = Tags()
    tags.feed(page(found))
    assert [] == tags.open
    assert [] == tags.references
    assert not {"script", "link", "img", "iframe"} & tags.names
    styles = re.findall(r"<style>(.*?)</style>", page(found), re.DOTALL)
    assert not [style for style in styles if "url(" in style or "@import" in style]


def test_each_plot_is_an_image_that_says_what_it_shows(found: Report) -> None:
    drawn = re.findall(r"<svg.*?</svg>", page(found), re.DOTALL)
    assert 6 == len(drawn)
    for one in drawn:
        svg = xml.dom.minidom.parseString(one).documentElement
        assert svg is not None
        assert svg.getAttribute("aria-label")
        assert "nan" not in one
        assert "inf" not in one.replace("info", "")


def test_what_comes_from_a_scenario_is_text(found: Report) -> None:
    assert "<h1>&lt;b&gt;&amp;&#x27;&quot;</h1>" in page(found)


def test_the_page_tells_what_happened(found: Report) -> None:
    text = page(found)
    for words in ("r1 cut off", "r1 frozen", "no coordinator", "r2 now has weight 7", "What you see."):
        assert words in text


def test_a_page_without_the_product_has_the_table_alone(found: Report) -> None:
    only = report(found.scenario, found.work, {"oracle": found.oracle}, ["oracle"])
    assert "<svg" not in page(only)


@pytest.mark.parametrize(
    ("at", "told"), [(0, "0"), (30, "0:30 min"), (600, "10 min"), (5400, "1:30 h"), (90_000, "25:00 h")]
)
def test_times_are_told_as_people_do(at: float, told: str) -> None:
    assert told == clock(at)


def test_more_values_than_can_be_seen_are_averaged() -> None:
    assert ([(0, 1.5), (20, 3.5), (40, 5.0)], 20) == grouped([1, 2, 3, 4, 5], 10, columns=3)
    assert ([(0, 1), (10, 2)], 10) == grouped([1, 2], 10)


def test_the_document_tells_of_each_scenario_that_can_be_played(tmp_path: Path) -> None:
    for name, source in (("one", 'shape = "flat"'), ("two", 'trace = "none.csv"')):
        (tmp_path / f"{name}.toml").write_text(
            f'name = "{name}"\nshows = "It shows {name}."\n[regions]\neu = {{}}\nus = {{}}\n'
            f"[demand]\n{source}\nbins = 5\nmean = 5\n"
        )
    gallery(tmp_path, tmp_path / "told.md")
    text = (tmp_path / "told.md").read_text()
    assert "## one\n\nIt shows one." in text
    assert "![slices and denials of one](told/one.svg)" in text
    assert "## two" not in text
    assert xml.dom.minidom.parse(str(tmp_path / "told" / "one.svg")).documentElement


def test_the_gallery_in_the_docs_tells_of_every_scenario() -> None:
    told = (ROOT / "docs" / "simulations.md").read_text()
    for file in (ROOT / "simulations").glob("*.toml"):
        assert f"\n## {file.stem}\n" in told
        assert f"(simulations/{file.stem}.svg)" in told
        assert (ROOT / "docs" / "simulations" / f"{file.stem}.svg").exists()


def test_the_page_and_the_document_tell_of_priorities_where_there_are_several(found: Report, tmp_path: Path) -> None:
    assert "By priority" not in page(found)
    wanted = scenario(demand={"bins": 4, "low": 0.9, "high": 0.1}, quota={"limit_factor": 0.5, "low_fill_percent": 80})
    work = work_of(wanted)
    graded = report(wanted, work, {name: play(name, wanted, work) for name in ("oracle", "static")}, ["static"])
    assert "low priority 80 %" in page(graded)
    assert "<tr><td>static</td><td>high</td>" in page(graded)
    (tmp_path / "one.toml").write_text(
        'name = "one"\nshows = "It shows one."\npolicies = ["ours"]\n[regions]\neu = {}\nus = {}\n'
        '[demand]\nshape = "flat"\nbins = 4\nmean = 20\nlow = 1.0\n[quota]\nlow_fill_percent = 80\n'
    )
    gallery(tmp_path, tmp_path / "told.md")
    assert re.search(r"at each priority: low [0-9.]+ % \(oracle [0-9.]+ %\)\.", (tmp_path / "told.md").read_text())


def test_of_many_happenings_it_says_how_many_are_listed() -> None:
    events = [{"what": "coordinator_down", "at_s": 20 * at, "until_s": 20 * at + 5} for at in range(25)]
    wanted = scenario(events=events)
    work = work_of(wanted)
    drawn = page(report(wanted, work, {name: play(name, wanted, work) for name in ("oracle", "ours")}, ["ours"]))
    assert "Of 25 the first 20 are listed." in drawn


def test_the_key_of_many_long_names_stays_within_the_drawing_and_above_the_plot() -> None:
    names = [f"region-number-{number}" for number in range(16)]
    for entries in ([(f"c{at % 8}", name) for at, name in enumerate(names)], [("c0", "x" * 40)] * 17):
        drawn = xml.dom.minidom.parseString(f"<svg>{key(entries)}</svg>").documentElement
        (group,) = drawn.getElementsByTagName("g")
        found = re.fullmatch(r"translate\(([0-9.]+) ([0-9.]+)\) scale\(([0-9.]+)\)", group.getAttribute("transform"))
        assert found
        left, top, scale = map(float, found.groups())
        texts = group.getElementsByTagName("text")
        assert len(entries) == len(texts)
        for text in texts:
            wide = 8 * len(text.firstChild.data)
            assert left + scale * (float(text.getAttribute("x")) + wide) <= WIDTH
            assert top + scale * float(text.getAttribute("y")) < TOP
    assert "<g" not in key([("c0", "eu"), ("c1", "us")])


def test_names_that_begin_alike_are_told_apart_in_every_plot() -> None:
    wanted = scenario(regions={"us-east-1": {}, "us-east-2": {}})
    work = work_of(wanted)
    drawn = transfers_chart(work, play("ours", wanted, work))
    assert ">us-east-1<" in drawn
    assert ">us-east-2<" in drawn
