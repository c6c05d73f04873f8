"""The page: one file that loads nothing, escapes everything, and works in a browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from conftest import keep_run, make_gpu, make_result, make_run, make_task
from outputs import call, sample

from benchsuite.measurement import Measurement, Slice
from benchsuite.records import Failure, Result
from benchsuite.report.measure.window import task_window
from benchsuite.report.read.curves import Curve, Panel
from benchsuite.report.read.load import Loaded, Row, load
from benchsuite.report.read.summary_file import write_summary
from benchsuite.report.show.html import charts, page
from benchsuite.report.show.html.matrix import level, matrix
from benchsuite.report.show.report import Report
from benchsuite.report.show.svg import paint, scale, thinned
from benchsuite.report.sources import summary_of
from benchsuite.report.stats.score import score
from benchsuite.report.stats.summarise import summarise
from benchsuite.report.stats.weights import weigh, weights_for

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
EVIL = "<script>alert(1)</script>"
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
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def first_column(self, table: int = 1) -> list[str]:
        """Of the job table, by default: the score block is no table."""
        return [row[0] for row in self.tables[table - 1][1:]]


def page_of(folder: Path, **fields: object) -> str:
    loaded = load(folder)
    return page(report_on(loaded), loaded)


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
        assert not LOADING & set(attributes), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
    assert not re.search(r"url\(|@import", text)
    assert "http" not in text.replace('http-equiv="Content-Security-Policy"', "")


def test_all_parts_are_there_in_order(tmp_path: Path) -> None:
    results = [with_hold(make_result("a", [50] * 30)), make_result("a", [48] * 30, gpu=1)]
    error = Failure(kind="oom", message="no memory", traceback="\n".join(f"printed {line}" for line in range(99)))
    results.append(make_result("b", (), status="oom", error=error))
    keep_run(tmp_path, results)
    text = page_of(tmp_path)
    headings = re.findall(r"<h2>(.*?)</h2>", text)
    assert headings == ["Score", "Jobs", "Not ok", "GPUs", "Throughput over time", "Failures, with their last lines",
                        "Environment"]  # fmt: skip
    read = Reader(text)
    assert len(read.named("polyline")) == 2
    assert [box["class"] for box in read.named("rect")] == ["window", "hold", "window"]
    assert "printed 98" in text
    assert "printed 58" not in text, "the last lines only"
    assert text.index('class="figure">') < text.index(">Jobs<")
    assert "96.0" in [cell for row in read.tables[2] for cell in row], "GPU 1 in percent of the best"
    assert all(head.get("scope") for head in read.named("th"))
    assert 'aria-sort="none"' in text
    assert "<dd>jobs suite</dd>" in text


def test_no_control_character_of_a_file_gets_into_the_page(tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result("a\x1b[2J\u202e", host="h\x9b", gpu=gpu) for gpu in range(2)])
    text = page_of(tmp_path)
    assert all(c.isprintable() or c in "\n\t" for c in text)
    assert text.count("a\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}") >= 3, "name, curve, matrix"


def test_the_matrix_compares_gpus_by_the_row(tmp_path: Path) -> None:
    """A task on several GPUs has no place in it."""
    rates = ((0, 100), (1, 96), (2, 80), (3, 98))
    results = [make_result("a", [rate] * 30, gpu=gpu) for gpu, rate in rates]
    results += [make_result("b", gpu=0), make_result("b", (), gpu=1, status="oom")]
    both = msgspec.structs.replace(make_task("c"), gpus=(make_gpu(0), make_gpu(1)))
    keep_run(tmp_path, [*results, make_result(task=both)], run=make_run(4))
    found = matrix(summarise(load(tmp_path)))
    assert found
    assert (found.hosts, found.gpus, found.left_out) == ((("hostA", 4),), ("GPU 0", "GPU 1", "GPU 2", "GPU 3"), 0)
    a, b = (cells for _, cells in found.rows)
    assert [(cell.text, level(cell)) for cell in a] == [
        ("100.0", "level0"), ("96.0", "level2"), ("80.0", "level4"), ("98.0", "level1"),
    ]  # fmt: skip
    assert a[1].value == pytest.approx(0.96)
    assert a[1].note == "96.00 items/s; 1 task, 0 not ok"
    assert [(cell.text, level(cell)) for cell in b[1:3]] == [("1 oom", "failed"), ("n/a", "none")]


def test_cells_are_sorted_by_their_values_and_absent_ones_last(tmp_path: Path) -> None:
    """Not by what is read: 1,234.50 image/s is a number."""
    keep_run(tmp_path, [make_result("a", [1234.5] * 30), make_result("b", (), status="oom")])
    text = page_of(tmp_path).partition("<h2>Environment")[0]
    cells = re.findall(r'<td class="right"([^>]*)>(?:<span[^>]*>)?(1,23\d[^<]*|n/a)<', text)
    values = {shown: re.findall(r'data-value="([^"]*)"', attributes) for attributes, shown in cells}
    ((perf,),) = (of for shown, of in values.items() if shown.startswith("1,23"))
    assert float(perf) == pytest.approx(1234.5, rel=1e-3)
    assert all(attributes.strip() == 'data-absent=""' for attributes, shown in cells if shown == "n/a")


def test_the_window_is_shaded_where_it_is() -> None:
    """15 s of slices: the window is from 5 s to 14 s; the drawing is 266 wide, from 46 on."""
    result = make_result()
    row = Row(result.task, "ok", None, result, None, task_window(result))
    ((_, (figure,)),) = [(group.name, group.figures) for group in charts.timelines([row]).groups]
    (box,) = Reader(str(figure.svg)).named("rect")
    assert float(box["x"] or 0) == pytest.approx(46 + 266 * 5 / 15, abs=0.1)
    assert float(box["width"] or 0) == pytest.approx(266 * 9 / 15, abs=0.1)


def test_jobs_of_one_task_each_share_a_row() -> None:
    results = [make_result(job, [50] * 30) for job in ("a", "b")]
    rows = [Row(r.task, "ok", None, r, None, task_window(r)) for r in results]
    (group,) = charts.timelines(rows).groups
    assert [figure.note for figure in group.figures] == ["50.00 image/s"] * 2
    assert [group.name for group in charts.timelines([*rows, rows[0]]).groups] == ["a, image/s", "b, image/s"]


def test_a_burst_is_reported_beside_its_jobs_name() -> None:
    results = [make_result(job, [100] * 29 + [last]) for job, last in (("a", 5e4), ("a", 5e3), ("b", 200))]
    rows = [Row(r.task, "ok", None, r, None, task_window(r)) for r in results]
    names = [group.name for group in charts.timelines(rows).groups]
    assert names == ["a, image/s (2 slices above, up to 50,000)", "b, image/s"]
    (group,) = charts.timelines(rows[1:]).groups
    assert [figure.note for figure in group.figures] == [
        "100.0 image/s (1 slice above, up to 5,000)",
        "100.0 image/s",
    ]


def test_telemetry_is_drawn_where_it_was_kept(tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result(), make_result(gpu=1)])
    assert ">Telemetry<" not in page_of(tmp_path)
    sample(tmp_path)
    file = tmp_path / "telemetry" / "vae.J0.1.a1.jsonl"
    file.write_bytes(b'{"of": 3}\n[]\nnull\n{"kind":\xff\n' + file.read_bytes() + b'{"of":"GPU-0001","monoto')
    text = page_of(tmp_path)
    assert text.count('class="telemetry"') == 2
    for shown in ("GPU 0: power", "GPU 1: temperature", "GPU 1: SM clock", "processes: CPUs busy"):
        assert shown in text
    assert "300 to 319 W" in text
    assert "CPUs stolen" not in text


def test_what_a_hypervisor_withheld_is_drawn(tmp_path: Path) -> None:
    keep_run(tmp_path, [make_result()])
    sample(tmp_path, stolen=1.5)
    assert "CPUs stolen of processes: 1.5 to 1.5" in page_of(tmp_path)


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
    assert f"{1000 - charts.MOST_TIMELINES} more tasks are left out" in text
    assert text.count("<polyline") == charts.MOST_TIMELINES
    assert len(text) < 1_500_000


def test_of_a_summary_it_says_what_is_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    keep_run(tmp_path / "run", [make_result(), make_result(gpu=1)])
    write_summary(tmp_path / "s.json", summary_of(tmp_path / "run"))
    assert call(capsys, "report", tmp_path / "s.json", "--html", tmp_path / "p.html")[0] == 0
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    Reader(text)
    assert "made from a summary" in text
    assert "<polyline" not in text
    assert ">GPUs<" in text


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


def sortable_run(folder: Path) -> Path:
    rates = {"nine": 9, "thousand": 1000, "eighty": 80}
    results = [make_result(job, [rate] * 30) for job, rate in rates.items()]
    keep_run(folder, [make_result("none", (), status="failed"), *results])
    return folder


@needs_chromium
@pytest.mark.parametrize(
    ("fragment", "order", "state"),
    [
        ("", ["none", "nine", "thousand", "eighty"], "none"),
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


@needs_chromium
def test_a_header_is_a_button_that_sorts(tmp_path: Path) -> None:
    """Twice pressed: descending. The page's policy is taken out, so that the test can press."""
    text = page_of(sortable_run(tmp_path / "run"))
    press = (
        "<script>const b = document.querySelector('th[data-key=perf] button'); b.focus(); b.click(); b.click()</script>"
    )
    file = tmp_path / "p.html"
    policy = re.search(r'<meta http-equiv="Content-Security-Policy"[^>]*>', text)
    assert policy is not None
    file.write_text(text.replace(policy[0], "").replace("</body>", f"{press}</body>"), encoding="utf-8")
    read, console = browse(file, "", tmp_path / "home")
    assert console == []
    assert read.first_column() == ["thousand", "eighty", "nine", "none"]
    assert len(read.named("button")) == len([th for th in read.named("th") if "data-key" in th])


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
    assert EVIL in read.title
