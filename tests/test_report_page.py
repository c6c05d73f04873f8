"""The page: one file that loads nothing, escapes everything, and works in a browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from conftest import keep_run, make_gpu, make_result, make_run, make_task
from outputs import call, report_of, sample

from benchsuite.measurement import Measurement, Slice
from benchsuite.records import Failure, Result
from benchsuite.report.measure.window import task_window
from benchsuite.report.read.curves import Curve, Panel, joined
from benchsuite.report.read.load import Loaded, Row, load
from benchsuite.report.read.summary_file import write_summary
from benchsuite.report.show.document import Cell, Column, Section, sentence, table
from benchsuite.report.show.html import curves, page
from benchsuite.report.show.html.shell import macro, render
from benchsuite.report.show.report import Report, document
from benchsuite.report.show.svg import paint, scale, thinned
from benchsuite.report.sources import summary_of
from benchsuite.report.stats.score import score
from benchsuite.report.stats.summarise import summarise
from benchsuite.report.stats.weights import weigh, weights_for
from benchsuite.rundir import RunDir

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
EVIL = "<script>alert(1)</script>"
# The links of the page lead to its own sections, or to a log by a relative path.
OWN_LINK = re.compile(r"#[a-z0-9-]+|\./\S+")
VOID = {"meta", "br", "link", "img", "input", "hr"}
LOADING = {"src", "href", "srcset", "data", "poster", "action", "formaction", "xlink:href", "background"}


class Reader(HTMLParser):
    """A page as tags and texts; each tag must be closed in its order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.title = ""
        self.headings: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if "h1" in self.open:
            self.title += data
        if "h2" in self.open:
            self.headings.append(data)
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def first_column(self, table: int = 1) -> list[str]:
        """Of the table of jobs, by default: a page without a baseline has no table before it."""
        return [row[0] for row in self.tables[table - 1][1:]]


def page_of(folder: Path, file: Path | None = None) -> str:
    loaded = load(folder)
    return page(report_on(loaded), loaded, file)


def report_on(loaded: Loaded) -> Report:
    summary = summarise(loaded)
    return Report(f"it {EVIL}", summary, score(summary, weigh(weights_for(summary.profile, None), summary)))


def with_hold(result: Result) -> Result:
    (stream,) = result.measurement.streams
    end_s = stream.slices[-1].end_s
    held = Slice(start_s=end_s, end_s=end_s + 2, steps=1, items=1, phase="hold")
    stream = msgspec.structs.replace(stream, slices=(*stream.slices, held))
    return msgspec.structs.replace(result, measurement=Measurement(streams=(stream,)))


def evil_run(folder: Path) -> Path:
    error = Failure(kind="x", message=f"</style>{EVIL}", traceback=f"line\n</pre></style></script>{EVIL}\x1b[2J")
    task = make_task(EVIL)
    broken = msgspec.structs.replace(make_task(f'"onload="{EVIL}'), gpus=(make_gpu(1, EVIL),))
    run = make_run()
    cards = (make_gpu(0, EVIL), make_gpu(1))
    host = f'"><img src=x onerror=alert(1)>{EVIL}'
    machine = msgspec.structs.replace(run.machine, host=host, gpus=cards, packages={EVIL: EVIL})
    profile = msgspec.structs.replace(run.profile, text=f"</pre></script>{EVIL}", name=EVIL)
    run = msgspec.structs.replace(run, machines=(machine,), profile=profile, command=("jobs", EVIL))
    results = [make_result(task=task, host=EVIL), make_result(task=broken, status="failed", rates=[5] * 9, error=error)]
    keep_run(folder, results, run=run)
    sample(folder)
    return folder


def test_everything_is_escaped_and_nothing_is_loaded(tmp_path: Path) -> None:
    text = page_of(evil_run(tmp_path))
    read = Reader(text)
    assert "<script>alert" not in text
    assert "\x1b" not in text
    assert "".join(read.texts).count(EVIL) >= 8, "all of it is still shown"
    assert {tag: len(read.named(tag)) for tag in ("script", "style", "img", "link", "iframe")} == {
        "script": 1, "style": 1, "img": 0, "link": 0, "iframe": 0,
    }  # fmt: skip
    for tag, attributes in read.tags:
        assert not (LOADING - {"href"}) & set(attributes), (tag, attributes)
        assert "href" not in attributes or (tag == "a" and OWN_LINK.fullmatch(attributes["href"] or "")), attributes
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
    assert not re.search(r"url\(|@import", text)
    assert "http" not in text.replace('http-equiv="Content-Security-Policy"', "")


def test_all_parts_are_there_in_order(tmp_path: Path) -> None:
    """The verdict stands first, and failures before all figures."""
    results = [with_hold(make_result("a", [50] * 30)), make_result("a", [48] * 30, gpu=1)]
    error = Failure(kind="oom", message="no memory", traceback="\n".join(f"printed {line}" for line in range(99)))
    results.append(make_result("b", (), status="oom", error=error))
    keep_run(tmp_path, results)
    text = page_of(tmp_path)
    read = Reader(text)
    assert read.headings[:5] == ["Failures", "Jobs", "GPUs side by side", "Throughput over time", "Details"]
    assert read.headings[-1] == "Environment"
    assert text.index('class="verdict"') < text.index('class="numbers"') < text.index(">Failures<")
    assert [link["href"] for link in read.named("a")][1:] == ["#failures", "#jobs", "#gpus", "#throughput", "#details"]
    assert {name: len(read.named(name)) for name in ("header", "nav", "main", "h1")} == dict.fromkeys(
        ("header", "nav", "main", "h1"), 1
    )
    assert len([line for line in read.named("polyline")]) == 2
    assert [box["class"] for box in read.named("rect")] == ["window", "hold"]
    assert "printed 98" in text
    assert "printed 58" not in text, "the last lines only"
    assert "\N{MINUS SIGN}2.0" in [cell for row in read.tables[1] for cell in row], "GPU 1 against the median"
    assert all(head.get("scope") for head in read.named("th"))
    assert 'aria-sort="none"' in text
    assert "<dd>benchsuite jobs suite</dd>" in text


def test_a_failure_has_its_type_and_a_link_to_its_log(tmp_path: Path) -> None:
    error = Failure(kind="ValueError", message="no such layer", traceback=None)
    result = make_result("b", (), status="failed", error=error)
    keep_run(tmp_path / "out 1", [make_result("a"), result])
    assert "Whole log" not in page_of(tmp_path / "out 1"), "the log is gone"
    log = RunDir(tmp_path / "out 1").log(result.task, 1, "err")
    log.parent.mkdir(exist_ok=True)
    log.write_text("printed\n")
    linked = page_of(tmp_path / "out 1", tmp_path / "pages" / "p.html")
    assert f'<a href="./../out%201/logs/{log.name}">Whole log</a>' in linked
    assert "<b>ValueError</b>: no such layer" in linked
    assert f"Whole log: {log}" in page_of(tmp_path / "out 1"), "without a place of the page"


def test_other_pages_use_the_same_shell() -> None:
    column: Column[str] = Column("system <b>", lambda name: Cell(name, note="a note"))
    part = Section("Machines", (table((column,), ["one", "two\x1b"]), sentence("Both.")))
    intro = (sentence("One is faster."), sentence("Quite."))
    text = render("shell.html", title="2 systems & more", intro=intro, body=macro("parts.html", "section", part))
    read = Reader(text)
    assert (read.title, read.headings) == ("2 systems & more", ["Machines"])
    assert '<p class="verdict">One is faster.</p>' in text
    assert read.tables == [[["system <b>"], ["one"], ["two\N{REPLACEMENT CHARACTER}"]]]
    assert 'data-tip="a note" tabindex="0"' in text
    assert len(read.named("script")) == len(read.named("style")) == 1


def test_no_control_character_of_a_file_gets_into_the_page(tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result("a\x1b[2J\u202e", host="h\x9b", gpu=gpu) for gpu in range(2)])
    text = page_of(tmp_path)
    assert all(c.isprintable() or c in "\n\t" for c in text)
    assert text.count("a\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}") >= 3, "name, curve, heat map"


def test_cells_are_sorted_by_their_values_and_absent_ones_last(tmp_path: Path) -> None:
    """Not by what is read: 1,234.50 image/s is a number."""
    keep_run(tmp_path, [make_result("a", [1234.5] * 30), make_result("b", (), status="oom")])
    text = page_of(tmp_path).partition("<h2>GPUs")[0]
    cells = re.findall(r'<td class="right"([^>]*)>(?:<span[^>]*>)?(1,23\d[^<]*|n/a)<', text)
    values = {shown: re.findall(r'data-value="([^"]*)"', attributes) for attributes, shown in cells}
    ((perf,),) = (of for shown, of in values.items() if shown.startswith("1,23"))
    assert float(perf) == pytest.approx(1234.5, rel=1e-3)
    assert all(attributes.strip() == 'data-absent=""' for attributes, shown in cells if shown == "n/a")


def rows_of(*results: Result) -> list[Row]:
    return [Row(r.task, "ok", None, r, None, task_window(r)) for r in results]


def panels(*results: Result) -> list[curves.Figure]:
    return [figure for group in curves.timelines(rows_of(*results)).groups for figure in group.figures]


def test_the_window_is_shaded_where_it_is() -> None:
    """15 s of slices: the window is from 5 s to 14 s; the drawing is 266 wide, from 46 on."""
    (figure,) = panels(make_result())
    (box,) = Reader(str(figure.svg)).named("rect")
    assert float(box["x"] or 0) == pytest.approx(46 + 266 * 5 / 15, abs=0.1)
    assert float(box["width"] or 0) == pytest.approx(266 * 9 / 15, abs=0.1)


def test_shades_of_many_tasks_do_not_add_up() -> None:
    assert joined([(3, 5), (0, 2), (1, 2.5), (3.5, 4)]) == [(0, 2.5), (3, 5)]
    (figure,) = panels(make_result(), make_result(repeat=1), make_result(repeat=2))
    assert len(Reader(str(figure.svg)).named("rect")) == 1


def test_each_line_of_a_job_is_named() -> None:
    """A colour for each GPU and a dash for each repeat; with a single GPU a colour for each repeat."""
    (figure,) = panels(*(make_result(gpu=gpu, repeat=repeat) for repeat in range(2) for gpu in range(2)))
    lines = Reader(str(figure.svg)).named("polyline")
    assert [line["class"] for line in lines] == ["c0", "c1", "c0 d1", "c1 d1"]
    assert [(line["data-tip"] or "").partition(":")[0] for line in lines] == [
        "GPU 0, repeat 0", "GPU 1, repeat 0", "GPU 0, repeat 1", "GPU 1, repeat 1",
    ]  # fmt: skip
    assert [(key.look, key.name) for key in figure.keys] == [
        ("c0", "GPU 0"), ("c1", "GPU 1"), ("plain d0", "repeat 0"), ("plain d1", "repeat 1"),
    ]  # fmt: skip
    (figure,) = panels(make_result(), make_result(repeat=1))
    assert [(key.look, key.name) for key in figure.keys] == [("c0", "GPU 0, repeat 0"), ("c1", "repeat 1")]


def test_a_burst_is_reported_beside_its_jobs_name() -> None:
    results = [make_result(job, [100] * 29 + [last]) for job, last in (("a", 5e4), ("a", 5e3), ("b", 200))]
    notes = [(figure.name, figure.note.partition(",")[0]) for figure in panels(*results)]
    assert notes[0][1].startswith("image/s (2 slices above")
    assert notes[1] == ("b", "image/s")


def test_telemetry_is_drawn_where_it_was_kept(tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result(), make_result(gpu=1)])
    assert ">Telemetry<" not in page_of(tmp_path)
    sample(tmp_path)
    file = tmp_path / "telemetry" / "vae.J0.1.a1.jsonl"
    file.write_bytes(b'{"of": 3}\n[]\nnull\n{"kind":\xff\n' + file.read_bytes() + b'{"of":"GPU-0001","monoto')
    text = page_of(tmp_path)
    assert text.count('class="telemetry"') == 1, "one group a job"
    for shown in ("<b>power</b>", "<b>temperature</b>", "<b>SM clock</b>", "<b>CPUs busy</b>"):
        assert text.count(shown) == 1
    for gpu in range(2):
        assert f'data-tip="GPU {gpu}, repeat 0: 300 to 319 W"' in text
    assert "CPUs stolen" not in text


def test_what_a_hypervisor_withheld_is_drawn(tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result()])
    sample(tmp_path, stolen=1.5)
    assert "CPUs stolen</b>1.5 to 1.5" in page_of(tmp_path)


def test_a_series_of_another_folder_is_not_read(tmp_path: Path) -> None:
    keep_run(tmp_path / "other", [make_result()])
    sample(tmp_path / "other")
    (file,) = (tmp_path / "other").glob("suite*.json")
    content = file.read_bytes().replace(b"telemetry/vae", b"../other/telemetry/vae")
    keep_run(tmp_path / "run", [make_result()])
    next((tmp_path / "run").glob("suite*.json")).write_bytes(content)
    assert b"../other" in content
    assert ">Telemetry<" not in page_of(tmp_path / "run")


def test_a_thousand_tasks_stay_a_small_page(tmp_path: Path) -> None:
    results = [make_result(f"job{i % 10}", [50 + i % 7] * 200, gpu=i % 8, repeat=i // 80) for i in range(1000)]
    rows = tuple(Row(r.task, "ok", None, r, None, task_window(r)) for r in results)
    loaded = Loaded(tmp_path, make_run(8), True, rows, (), ())
    text = page(report_on(loaded), loaded)
    Reader(text)
    assert f"{1000 - curves.MOST_TIMELINES} more tasks are left out" in text
    assert text.count("<polyline class=") == curves.MOST_TIMELINES
    assert len(text) < 1_000_000


def test_of_a_summary_it_says_what_is_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    keep_run(tmp_path / "run", [make_result(), make_result(gpu=1)])
    write_summary(tmp_path / "s.json", summary_of(tmp_path / "run"))
    assert call(capsys, "report", tmp_path / "s.json", "--html", tmp_path / "p.html")[0] == 0
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    Reader(text)
    assert "made from a summary" in text
    assert "<polyline" not in text
    assert ">GPUs side by side<" in text


@pytest.mark.parametrize(
    ("top", "end", "step"), [(1.0, 1.0, 0.5), (3200, 4000, 2000), (100, 100, 50), (0.034, 0.04, 0.02), (661, 750, 250)]
)
def test_an_axis_ends_at_a_round_number(top: float, end: float, step: float) -> None:
    assert scale(top) == (pytest.approx(end), pytest.approx(step))


@pytest.mark.parametrize("top", [0.0, -1.0, 1e308, float("inf"), float("nan"), 5e-324])
def test_no_number_breaks_a_chart(top: float) -> None:
    row = Row(make_task(), "ok")
    curve = Curve(row, "GPU 0", "image/s", [(0.0, top), (1e308, 1.0), (-5.0, -1.0)], 1e308)
    svg = paint(Panel("rates", "image/s", (curve,), 1e308, top), '"<x')
    assert not re.search("nan|inf", svg)
    Reader(svg)


def test_thinning_keeps_the_dips() -> None:
    points = [(float(i), 0.0 if i == 7777 else 9.0) for i in range(10_000)]
    kept = thinned(points)
    assert len(kept) <= 240
    assert (7777.0, 0.0) in kept
    assert list(kept) == sorted(kept)


# --- in a browser -----------------------------------------------------------------------------------------------------


def browse(file: Path, fragment: str, home: Path) -> tuple[Reader, list[str]]:
    """The page after its script has run, and what the console shows."""
    assert CHROMIUM is not None
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--user-data-dir={home}",
         "--virtual-time-budget=2000", "--dump-dom", f"{file.as_uri()}{fragment}"],
        capture_output=True, encoding="utf-8", timeout=120, check=True,
    )  # fmt: skip
    return Reader(done.stdout), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def without_policy(text: str) -> str:
    """The page without its policy, so that a test can act in it."""
    policy = re.search(r'<meta http-equiv="Content-Security-Policy"[^>]*>', text)
    assert policy is not None
    return text.replace(policy[0], "")


def sortable_run(folder: Path) -> Path:
    rates = {"nine": 9, "thousand": 1000, "eighty": 80}
    results = [make_result(job, [rate] * 30) for job, rate in rates.items()]
    keep_run(folder, [make_result("none", (), status="failed"), *results])
    return folder


@needs_chromium
@pytest.mark.parametrize(
    ("fragment", "order", "state"),
    [
        ("#sort=perf", ["nine", "eighty", "thousand", "none"], "ascending"),
        ("#sort=-perf", ["thousand", "eighty", "nine", "none"], "descending"),
    ],
)
def test_the_job_table_is_sorted_from_the_address(fragment: str, order: list[str], state: str, tmp_path: Path) -> None:
    file = tmp_path / "p.html"
    file.write_text(page_of(sortable_run(tmp_path / "run")), encoding="utf-8")
    read, console = browse(file, fragment, tmp_path / "home")
    assert console == []
    assert read.first_column() == order
    (perf,) = [th for th in read.named("th") if th.get("data-key") == "perf"]
    assert perf["aria-sort"] == state


# What a user does, with what the page then shows, as the text of one element.
ACTS = """<script>
const found = [];
const at = (selector) => document.querySelector(selector);
const cell = at(".heat td[data-tip]");
cell.focus();
found.push(at("#tip").hidden, at("#tip").textContent.split("\\n")[0], cell.getAttribute("aria-describedby"));
cell.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
found.push(document.activeElement === cell.nextElementSibling, cell.tabIndex, at("#tip").textContent.split("\\n")[0]);
document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
found.push(at("#tip").hidden);
const back = getComputedStyle(document.body).backgroundColor;
at(".theme").click();
found.push(document.documentElement.dataset.theme, getComputedStyle(document.body).backgroundColor !== back);
const line = at("#throughput polyline"), box = line.getBoundingClientRect();
const place = { bubbles: true, clientX: box.left + box.width / 2, clientY: box.top };
line.dispatchEvent(new PointerEvent("pointermove", place));
found.push(at("#tip").textContent.split("\\n")[1].replace(/ at .*/, ""));
const header = at("#jobs th[data-key=perf] button");
header.click();
header.click();
const names = Array.from(document.querySelectorAll("#jobs tbody th"), (name) => name.textContent);
found.push(names, header.parentElement.getAttribute("aria-sort"));
document.querySelector("main").textContent = JSON.stringify(found);
</script>"""


@needs_chromium
def test_a_page_answers_pointer_and_keyboard(tmp_path: Path) -> None:
    """Tooltips, arrow keys in the heat map, the theme, the value under the pointer, and a header pressed twice."""
    keep_run(
        tmp_path / "run",
        [make_result(job, [rate] * 30, gpu=gpu) for job, rate in (("a", 50), ("b", 60)) for gpu in (0, 1)],
    )
    file = tmp_path / "p.html"
    file.write_text(without_policy(page_of(tmp_path / "run")).replace("</body>", f"{ACTS}</body>"), encoding="utf-8")
    read, console = browse(file, "", tmp_path / "home")
    assert console == []
    shown = json.loads(next(text for text in read.texts if text.startswith("[false")))
    assert shown == [
        False, "a on GPU 0 (0000) on hostA", "tip", True, -1, "a on GPU 1 (0001) on hostA", True, "dark", True,
        "50 image/s",
        ["b", "a"], "descending",
    ]  # fmt: skip


FRAME = """<iframe id="phone" style="width:390px;height:800px;border:0" srcdoc="{page}"></iframe><p id="found"></p>
<script>
document.getElementById("phone").addEventListener("load", (event) => {{
  const root = event.target.contentDocument.documentElement;
  const shown = (selector) => Array.from(root.querySelectorAll(selector), (cell) => {{
    const box = cell.getBoundingClientRect();
    return box.width > 0 && box.left >= 0 && box.right <= 390;
  }});
  const rows = ".bars tbody:last-of-type tr > ";
  document.getElementById("found").textContent = JSON.stringify([
    root.scrollWidth === root.clientWidth,
    shown(rows + "th"), shown(rows + "td:nth-child(3)"), shown(rows + "td.word"), shown("svg .bar"),
    shown("#jobs tbody tr:first-child > *"),
  ]);
}});
</script>"""


@needs_chromium
def test_a_phone_shows_job_ratio_and_verdict_without_scrolling_sideways(tmp_path: Path) -> None:
    for name, rate in (("here", 100), ("base", 80)):
        rates = [(job, repeat, rate + repeat) for job in ("a", "b_with_a_long_name") for repeat in range(3)]
        keep_run(tmp_path / name, [make_result(job, [of] * 30, repeat=repeat) for job, repeat, of in rates])
    here, base = (summarise(load(tmp_path / name)) for name in ("here", "base"))
    text = page(report_of(here, base=base), load(tmp_path / "here"))
    file = tmp_path / "p.html"
    file.write_text(FRAME.format(page=html.escape(without_policy(text))), encoding="utf-8")
    read, console = browse(file, "", tmp_path / "home")
    assert console == []
    found = json.loads(next(text for text in reversed(read.texts) if text.startswith("[")))
    fits, jobs, ratios, verdicts, charts, columns = found
    assert fits
    assert jobs == ratios == verdicts == [True, True]
    assert all(charts) and len(charts) == 4, "two overall ratios and two jobs"
    assert [name for name, shown in zip(("job", "n", "fail"), columns, strict=False) if shown] == ["job", "fail"]


@needs_chromium
def test_the_policy_stops_what_is_not_ours(tmp_path: Path) -> None:
    """Were anything to get through unescaped, it would still not run; and the console is really looked at."""
    act = "document.querySelector('h1').textContent = 'taken'"
    evil = f'<script>{act}</script><img src=x onerror="{act}">'
    text = page_of(evil_run(tmp_path / "run"))
    file = tmp_path / "p.html"
    file.write_text(text, encoding="utf-8")
    _, console = browse(file, "#sort=perf", tmp_path / "home")
    assert console == []
    file.write_text(text.replace("</body>", f"{evil}</body>"), encoding="utf-8")
    read, console = browse(file, "", tmp_path / "home")
    assert any("Content Security Policy" in line for line in console)
    assert read.title == document(report_on(load(tmp_path / "run"))).title
