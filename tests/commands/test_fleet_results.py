"""`gpuenv report --hosts`: the results of many hosts as a table, a document and a page."""

import html.parser
import json

import pytest
from environment_facts import ok, refused

ROWS = [
    {"host": "b", "class": "cpu", "plan": "jax 0.10.2 (CPU)", "verdict": "cpu", "ok": True, "seconds": 3.25},
    {"host": "a", "class": "sm90-r580", "plan": "jax 0.10.2 (CUDA 12.9)", "verdict": "works", "ok": True, "seconds": 12},
    {"host": "z9", "class": "sm80-r535", "plan": "jax 0.10.2 (CUDA 12.9)", "verdict": "fails", "ok": False,
     "cause": "<b>cudnnCreate</b> said 4", "hint": "run gpuenv repair /e", "seconds": 8.0},
    {"host": "k80", "verdict": "no_plan", "ok": False, "cause": "no build fits"},
]  # fmt: skip


class Cells(html.parser.HTMLParser):
    """The text of each cell of the page's table, and all tags and attributes that load something."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.loads = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")
        if tag in ("script", "link", "img", "b-") or any(k in ("src", "href") for k, _ in attrs):
            self.loads.append(tag)

    def handle_data(self, data):
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


@pytest.fixture
def results(gpuenv):
    path = gpuenv.work / "results.json"
    path.write_text(json.dumps({"schema": "gpuenv.fleet-results/1", "hosts": ROWS}))
    return path


def test_the_hosts_that_are_not_ok_come_first(gpuenv, results):
    ran = ok(gpuenv("report", "--hosts", results, "--json"))
    assert ran.json["schema"] == "gpuenv.fleet-results/1"
    assert [h["host"] for h in ran.json["hosts"]] == ["k80", "z9", "b", "a"]
    assert ran.json["hosts"][1] == ROWS[2] and ran.json["hosts"][0]["seconds"] is None
    gpuenv.env["COLUMNS"] = "120"
    lines = gpuenv("report", "--hosts", results).out.splitlines()
    assert lines[0] == "4 hosts: 1 no plan, 1 fails, 1 cpu, 1 works"
    assert lines[1].split() == ["HOST", "CLASS", "PLAN", "VERDICT", "CAUSE", "SECONDS"]
    assert [line.split()[0] for line in lines[2:]] == ["k80", "z9", "b", "a"]
    assert lines[3].split("  ")[-1] == "8.0" and "<b>cudnnCreate</b> said 4" in lines[3]


def test_the_page_has_the_same_rows_and_loads_nothing(gpuenv, results):
    ran = gpuenv("report", "--hosts", results, "--output", "page.html")
    assert ran.code == 0 and "page written to page.html" in ran.err
    text = (gpuenv.work / "page.html").read_text()
    cells = Cells(text)
    assert not cells.loads and "<b>cudnnCreate" not in text
    assert cells.rows[0] == ["host", "class", "plan", "verdict", "cause", "seconds"]
    assert [row[0] for row in cells.rows[1:]] == ["k80", "z9", "b", "a"]
    assert cells.rows[2][3:] == ["fails", "<b>cudnnCreate</b> said 4Do this: run gpuenv repair /e", "8.0"]
    assert 'class="mark fail">2 of 4 not ok<' in text
    assert gpuenv("report", "--hosts", results, "--output", "page.html").code == 0
    (gpuenv.work / "page.html").write_text("mine")
    refused = gpuenv("report", "--hosts", results, "--output", "page.html")
    assert refused.code == 2 and (gpuenv.work / "page.html").read_text() == "mine"
    assert gpuenv("report", "--hosts", results, "--output", "page.html", "--force").code == 0


def test_the_page_has_the_last_results_of_each_host(gpuenv, results):
    past = [{"when": f"2026-01-3{day}T12:00:00Z", "verdict": v, "ok": v == "works"}
            for day, v in ((1, "works"), (0, "fails"))]  # fmt: skip
    document = json.loads(results.read_text()) | {"history": {"a": past}}
    results.write_text(json.dumps(document))
    assert gpuenv("report", "--hosts", results, "--output", "page.html").code == 0
    rows = {row[0]: row for row in Cells((gpuenv.work / "page.html").read_text()).rows}
    assert rows["host"][-1] == "before" and rows["b"][-1] == "" and rows["a"][-1].split()[0] == "fails"


def test_the_results_as_metrics_of_prometheus(gpuenv, results):
    document = json.loads(results.read_text())
    document["hosts"][3]["cause"] = 'a "quoted"\\ cause\nin two lines'
    document["history"] = {"a": [{"when": "2026-01-31T12:00:00Z", "verdict": "works", "ok": True}]}
    results.write_text(json.dumps(document))
    ok(gpuenv("report", "--hosts", results, "--format", "prometheus", "-o", "gpuenv.prom"))
    text = gpuenv("report", "--hosts", results, "--format", "prometheus").out
    assert text in (gpuenv.work / "gpuenv.prom").read_text()
    assert gpuenv("report", "--hosts", results, "--format", "prometheus", "-o", "gpuenv.prom").code == 0
    plan = 'plan="jax 0.10.2 (CUDA 12.9)"'
    assert text.splitlines() == [
        "# HELP gpuenv_host_ok Whether the host has what was asked for.",
        "# TYPE gpuenv_host_ok gauge",
        r'gpuenv_host_ok{host="k80",class="",plan="",verdict="no_plan",cause="a \"quoted\"\\ cause in two lines"} 0',
        f'gpuenv_host_ok{{host="z9",class="sm80-r535",{plan},verdict="fails",cause="<b>cudnnCreate</b> said 4"}} 0',
        'gpuenv_host_ok{host="b",class="cpu",plan="jax 0.10.2 (CPU)",verdict="cpu",cause=""} 1',
        f'gpuenv_host_ok{{host="a",class="sm90-r580",{plan},verdict="works",cause=""}} 1',
        "# HELP gpuenv_host_result_time_seconds When the host had its last result.",
        "# TYPE gpuenv_host_result_time_seconds gauge",
        'gpuenv_host_result_time_seconds{host="a"} 1769860800',
    ]
    assert gpuenv("report", "--hosts", results, "--format", "json").code == 2
    assert "--format requires --hosts" in gpuenv("report", "--format", "prometheus").err


def test_results_are_read_from_standard_input(gpuenv, results):
    ran = gpuenv("report", "--hosts", "-", "--json", stdin=results.read_text())
    assert ran.json == gpuenv("report", "--hosts", results, "--json").json


def test_credentials_of_addresses_are_left_out(gpuenv, results):
    data = json.loads(results.read_text())
    data["hosts"][2]["cause"] = "https://user:hunter2@example.org/simple: 401"
    results.write_text(json.dumps(data))
    ran = gpuenv("report", "--hosts", results, "--json", "--output", "page.html")
    assert "hunter2" not in ran.out + ran.err + (gpuenv.work / "page.html").read_text()
    assert "example.org" in ran.out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "Expecting property name"),
        ('{"schema": "gpuenv.fleet/1", "hosts": []}', "'gpuenv.fleet/1' is not 'gpuenv.fleet-results/1'"),
        ('{"hosts": [{"host": "a", "verdict": "fine", "ok": true}]}', "hosts[0].verdict: 'fine' is not one of"),
        ('{"hosts": [{"host": "a", "verdict": "works"}]}', "hosts[0].ok: missing"),
        (json.dumps({"hosts": [ROWS[0], ROWS[0]]}), "the host 'b' is listed twice"),
    ],
)  # fmt: skip
def test_a_document_that_is_no_result_is_refused(gpuenv, results, text, said):
    results.write_text(text)
    assert said in " ".join(refused(gpuenv("report", "--hosts", results), 2).err.split())


def test_report_refuses_options_that_exclude_each_other(gpuenv, results):
    assert "ENV and --hosts are both given" in refused(gpuenv("report", "env", "--hosts", results), 2).err
    assert "--output requires --hosts" in refused(gpuenv("report", "--output", "page.html"), 2).err
