"""`--target` for several machines: files, folders, JSON lines and names of gpuenv.yaml."""

import json
import re
import sys
from pathlib import Path

import pytest
from environment_facts import ok, refused

from provision.cli.verbs import COMMANDS, SEVERAL_TARGETS, load_command
from provision.model.declare import iterate_options

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import simulate_fleet  # noqa: E402  # scripts/ is no package

A100, B200, K80 = ("8.0", "NVIDIA A100"), ("10.0", "NVIDIA B200"), ("3.7", "Tesla K80")


def machine(gpu, driver, **more):
    """What `gpuenv detect --json` says of a machine with one GPU."""
    target = {"platform": "linux-x86_64", "glibc": "2.35", "driver": driver, "driver_os": "linux", "driver_cuda": None,
              "gpus": [{"capability": gpu[0], "name": gpu[1]}], "forward_compat": None}  # fmt: skip
    return {"schema": "gpuenv.machine/1", "target": target, **more}


@pytest.fixture
def hosts(gpuenv):
    """A folder with four machines, of which two are alike."""
    folder = gpuenv.work / "hosts"
    folder.mkdir()
    for name, data in {
        "node1": machine(A100, "535.129.03"), "node2": machine(A100, "535.129.03"),
        "node3": machine(B200, "580.95.05"), "old": machine(K80, "470.256.02"),
    }.items():  # fmt: skip
        (folder / f"{name}.json").write_text(json.dumps(data))
    return folder


@pytest.mark.parametrize("framework", ["torch", "jax", "onnxruntime"])
def test_hosts_of_two_platforms_never_share_a_plan(gpuenv, framework):
    """GH200 and H100 have one capability and one driver, and builds of one version."""
    folder = gpuenv.work / "both"
    folder.mkdir()
    for name, platform, gpu in (
        ("gh200", "linux-aarch64", "9.0"),
        ("h100", "linux-x86_64", "9.0"),
        ("gb10", "linux-aarch64", "12.1"),
    ):
        data = machine((gpu, None), "580.95.05")
        data["target"] |= {"platform": platform, "glibc": "2.39"}
        (folder / f"{name}.json").write_text(json.dumps(data))
    ran = ok(
        gpuenv(
            "resolve", "-f", framework, "--target", "both", "--json", "--python", "3.12", "--plans", "fewest"
        )
    )
    platforms = {c["id"]: c["target"]["platform"] for c in ran.json["classes"]}
    shared = [(p["plan"]["platform"], [platforms[i] for i in p["classes"]]) for p in ran.json["plans"]]
    assert sorted(shared) == [("linux-aarch64", ["linux-aarch64"] * 2), ("linux-x86_64", ["linux-x86_64"])]
    (difference,) = ran.json["apart"]
    assert {"linux-aarch64", "linux-x86_64"} <= {*difference["reason"].split()}


def test_a_folder_is_a_fleet(gpuenv, hosts):
    ran = ok(
        gpuenv(
            "resolve", "-f", "torch", "--target", "hosts", "--json", "--python", "3.10", "--plans", "fewest"
        )
    )
    found = ran.json
    assert set(found) == {
        "schema",
        "classes",
        "plans",
        "apart",
        "unserved",
        "exact",
        "at_least",
        "prices",
        "notes",
    }
    assert found["schema"] == "gpuenv.fleet/1" and found["exact"] and found["at_least"] == 2
    assert [(c["id"], c["hosts"], c["target"]["driver"]) for c in found["classes"]] == [
        ("sm80-r535", ["node1", "node2"], "535.129.03"),
        ("sm37-r470", ["old"], "470.256.02"),
        ("sm100-r580", ["node3"], "580.95.05"),
    ]
    assert [(p["classes"], p["hosts"]) for p in found["plans"]] == [
        (["sm80-r535", "sm100-r580"], 3), (["sm37-r470"], 1),
    ]  # fmt: skip
    (apart,) = found["apart"]
    assert apart["plans"] == [0, 1] and apart["would_merge"] is None
    assert "Tesla K80" in apart["reason"] and "470.256.02" in apart["reason"]


def test_files_lines_and_folders_say_the_same(gpuenv, hosts):
    files = [w for f in sorted(hosts.iterdir()) for w in ("--target", str(f))]
    folder = gpuenv("resolve", "-f", "torch", "--target", "hosts", "--json")
    assert gpuenv("resolve", "-f", "torch", *files, "--json").json == folder.json
    lines = "".join(json.dumps({"host": f.stem, **json.loads(f.read_text())}) + "\n" for f in hosts.iterdir())
    done = gpuenv("resolve", "-f", "torch", "--target", "-", "--json", stdin=f"\n{lines}")
    assert done.json == folder.json


def test_one_target_file_gives_a_single_plan(gpuenv, hosts):
    ran = gpuenv("resolve", "-f", "torch", "--target", "hosts/node1.json", "--json")
    assert ran.json["schema"] == "gpuenv.plan/1" and ran.json["target"]["driver"] == "535.129.03"
    same = gpuenv(
        "resolve", "-f", "torch", "--driver", "535.129.03", "--gpu", "A100", "--glibc", "2.35", "--json"
    )
    assert ran.json["builds"] == same.json["builds"]
    gpuenv.env["GPUENV_TARGET"] = "hosts/node1.json"
    assert gpuenv("resolve", "-f", "torch", "--json").json == ran.json


def test_targets_of_gpuenv_yaml_keep_their_own_device_and_python(gpuenv, hosts):
    (gpuenv.work / "gpuenv.yaml").write_text(
        "frameworks: [torch]\ntargets:\n  ci: {device: cpu, python: '3.11'}\n"
        "  node: {driver: '535.129.03', gpus: [A100], glibc: '2.35'}\n"
    )
    ran = ok(
        gpuenv(
            "resolve",
            "--target",
            "ci",
            "--target",
            "node",
            "--target",
            "hosts/node3.json",
            "--json",
            "--plans",
            "2",
        )
    )
    assert [n for n in ran.json["notes"] if n.startswith("glibc of ci is not known: 2.")]
    plans = {tuple(p["classes"]): p["plan"] for p in ran.json["plans"]}
    assert sorted(h for c in ran.json["classes"] for h in c["hosts"]) == ["ci", "node", "node3"]
    (cpu,) = [p for p in plans.values() if p["device"] == "cpu"]
    assert cpu["python"] == "3.11" and len(plans) == 2


@pytest.mark.parametrize(
    "words",
    [["--driver", "535.129.03"], ["--gpu", "A100"], ["--gpus", "0"], ["--platform", "linux-aarch64"],
     ["--glibc", "2.28"], ["--driver-os", "windows"]],
)  # fmt: skip
def test_an_option_for_one_machine_beside_several_is_refused(gpuenv, hosts, words):
    ran = gpuenv("resolve", "-f", "torch", "--target", "hosts", *words)
    assert ran.code == 2 and f"{words[0]} describes one machine, but --target names several" in ran.err


def test_a_line_with_a_mistake_gets_what_is_right(gpuenv):
    rows = [{"host": f"node{n}", **machine(A100, "535.129.03")["target"]} for n in (1, 2, 3)]
    rows[1]["driver"], rows[2]["python"] = "five", "3.11"
    text = "".join(json.dumps(row) + "\n" for row in rows)
    done = gpuenv("resolve", "-f", "torch", "--target", "-", "--python", "3.11", stdin=text)
    said = " ".join(done.out.split())
    assert done.code == 5 and "'five' is not a valid value such as 580.65.06" in said
    assert re.search(r"line 3: node3: python: unknown .*device, .*host, .*remove it", said)
    assert said.endswith("no plan (2)")


def test_a_host_that_states_no_glibc_is_planned_like_one_described_by_options(gpuenv):
    """`resolve` and `lock` have one premise: the glibc of this machine, and a note says so."""
    silent = machine(A100, "535.129.03")
    del silent["target"]["glibc"]
    here = gpuenv("detect", "--json").json["target"]["glibc"]
    (gpuenv.work / "node.json").write_text(json.dumps(silent))
    one = gpuenv("resolve", "-f", "torch", "--target", "node.json", "--python", "3.11", "--json").json
    text = "".join(json.dumps(silent | {"host": f"node{n}"}) + "\n" for n in (1, 2))
    done = gpuenv("resolve", "-f", "torch", "--target", "-", "--python", "3.11", "--json", stdin=text)
    fleet = done.json
    assert one["target"]["glibc"] == fleet["plans"][0]["plan"]["target"]["glibc"] == here
    assert one["builds"] == fleet["plans"][0]["plan"]["builds"]
    assert fleet["notes"][0].startswith(f"glibc of node1, node2 is not known: {here} is assumed")


@pytest.mark.parametrize("words", [["create", "env"], ["create", "out"]])
def test_a_command_for_one_machine_refuses_a_second(gpuenv, hosts, words):
    ran = gpuenv(*words, "-f", "torch", "--target", "hosts/node1.json", "--target=hosts/node3.json")
    assert ran.code == 2
    assert f"--target is used 2 times, but `gpuenv {words[0]}` supports only one machine" in ran.err
    assert not (gpuenv.work / words[1]).exists()


def test_the_commands_for_several_machines_are_those_whose_option_repeats():
    kinds = {name: load_command(name)[0] for name in COMMANDS}
    repeats = {
        n for n, kind in kinds.items() for _, field, _ in iterate_options(kind) if field.name == "targets"
    }
    assert repeats == set(SEVERAL_TARGETS)


def test_conda_takes_one_target(gpuenv, hosts, golden):
    ran = refused(gpuenv("resolve", "-f", "torch", "--target", "hosts", "--manager", "conda"), 2)
    golden("resolve", ran.err)


def test_a_broken_driver_never_gets_a_cpu_plan(gpuenv, hosts):
    broken = machine(A100, None)
    broken["driver"] = {"kernel_module": "535.129.03", "problem": "libcuda.so.1 is missing"}
    broken["target"]["gpus"] = []
    broken["hardware"] = [{"vendor": "nvidia", "address": "0000:01:00.0", "device": "10de:20b0"}]
    (hosts / "sick.json").write_text(json.dumps(broken))
    ran = gpuenv("resolve", "-f", "torch", "--target", "hosts", "--json", "--plans", "fewest")
    assert ran.code == 5 and len(ran.json["plans"]) == 2
    (missing,) = ran.json["unserved"]
    assert missing["host"] == "sick" and "libcuda.so.1 is missing" in missing["reason"]
    assert all("sick" not in c["hosts"] for c in ran.json["classes"])
    alone = gpuenv("resolve", "-f", "torch", "--target", "hosts/sick.json", "--json")
    assert alone.code == 4 and alone.json["error"]["message"] == missing["reason"]
    words = gpuenv("resolve", "-f", "torch", "--target", "hosts").out
    assert f"no plan for sick: {missing['reason']}" in " ".join(words.split())


BAD = [
    ("{", "it is not JSON"),
    ("[]", "expected a JSON object, got list"),
    ('{"schema": "gpuenv.plan/1"}', "'gpuenv.plan/1' is not 'gpuenv.machine/1'"),
    (
        '{"platform": "linux-x86_64", "driver": "five", "host": "lab7"}',
        "lab7: driver: 'five' is not a valid value",
    ),
    ('{"platform": "linux-x86_64", "host": "a\\u001b[2J"}', "is not a host name"),
    ('{"platform": "linux-x86_64", "host": "one"}', "the host 'one' is listed twice, with different targets"),
    ('{"platform": "linux-x86_64", "device": "tpu"}', "device 'tpu' is not auto, cuda or cpu"),
    ('"' + "x" * (16 << 20) + '"', "it is longer than 16 MiB"),
]


def test_lines_that_are_no_host_are_listed_and_the_rest_is_planned(gpuenv):
    first, last = ({"host": h, **machine(A100, "535.129.03")} for h in ("one", "two"))
    lines = [json.dumps(first), *(line for line, _ in BAD), json.dumps(last)]
    ask = ("resolve", "-f", "torch", "--target", "-", "--json")
    found = refused(gpuenv(*ask, stdin="\n".join(lines) + "\n"), 5).json
    assert [c["hosts"] for c in found["classes"]] == [["one", "two"]]
    rows = [(u["host"], u["reason"]) for u in found["unserved"]]
    assert len(rows) == len(BAD)
    for (host, reason), (number, (_, said)) in zip(rows, enumerate(BAD, 2), strict=True):
        assert said in reason and (host == f"line {number}" or "five" in reason), (host, reason)
    assert "no host: line 1: it is not JSON" in refused(gpuenv(*ask, stdin="{\n"), 2).out


def test_a_file_that_is_no_host_is_listed_too(gpuenv, hosts):
    (hosts / "broken.json").write_text("{")
    (hosts / "folder.json").mkdir()
    ran = refused(gpuenv("resolve", "-f", "torch", "--target", "hosts", "--json"), 5)
    assert [u["host"] for u in ran.json["unserved"]] == ["hosts/broken.json", "hosts/folder.json"]
    assert sum(p["hosts"] for p in ran.json["plans"]) == 4
    (gpuenv.work / "gpuenv.yaml").write_text("targets: {node1: {driver: '580.95.05', gpus: ['9.0']}}\n")
    ran = gpuenv("resolve", "-f", "torch", "--target", "hosts", "--target", "node1", "--json")
    assert ran.code == 2 and "'node1' is listed twice" in ran.json["error"]["message"]


def test_hosts_without_an_nvidia_gpu_are_named_and_each_can_have_its_device(gpuenv):
    """A host with an AMD GPU says so, and `device` plans a node of a login cluster for the CPU."""

    def plain(**more):
        data = machine(A100, None, **more)
        data["target"]["gpus"] = []
        return data

    title = "The GPU is made by AMD; gpuenv makes environments for NVIDIA GPUs and for the CPU only"
    amd = {"cause": "no_gpu_build_for_platform", "title": title}
    login = {"container": None, "slurm": "login"}
    hosts = {
        "mi250": plain(findings=[amd]), "plain": plain(), "login": plain(context=login),
        "compute": plain(context=login, device="cpu"), "gpu": machine(A100, "535.129.03", device="cpu"),
    }  # fmt: skip
    lines = "".join(json.dumps({"host": h, **d}) + "\n" for h, d in hosts.items())
    found = gpuenv("resolve", "-f", "torch", "--target", "-", "--json", stdin=lines).json
    assert [(c["device"], c["hosts"]) for c in found["classes"]] == [
        ("cpu", ["compute", "mi250", "plain"]), ("cpu", ["gpu"]),
    ]  # fmt: skip
    assert [u["host"] for u in found["unserved"]] == ["login"]
    (note,) = found["notes"]
    assert note.startswith("mi250: planned for the CPU") and note.endswith(title)


def test_an_empty_folder_and_no_lines_name_no_host(gpuenv):
    (gpuenv.work / "empty").mkdir()
    ran = gpuenv("resolve", "-f", "torch", "--target", "empty")
    assert ran.code == 2 and "the folder has no .json file" in ran.err
    assert "--target names no host" in refused(gpuenv("resolve", "-f", "torch", "--target", "-"), 2).err


def test_the_table_of_a_simulated_fleet_fits_a_terminal(gpuenv):
    gpuenv.env["COLUMNS"] = "80"
    lines = "".join(json.dumps(h) + "\n" for h in simulate_fleet.hosts(300, 7))
    assert lines == "".join(json.dumps(h) + "\n" for h in simulate_fleet.hosts(300, 7))
    done = gpuenv("resolve", "-f", "torch", "--target", "-", stdin=lines)
    rows = done.out.splitlines()
    assert max(map(len, rows[:-1])) <= 80 and rows[0].startswith("300 hosts, ")
    heads = [row.split() for row in rows if row.startswith("PLAN ")]
    assert heads == [["PLAN", "HOSTS", "BUILDS", "AND", "HOST", "CLASSES"]]
    assert rows[-1].startswith("gpuenv lock --framework torch --target -  # ")


def test_the_price_of_few_plans_is_in_the_first_lines(gpuenv):
    """One V100 with an old driver beside new A100s: with the default it has a plan of its own."""
    hosts = [{"host": f"a{i}", **machine(A100, "580.65.06")} for i in range(9)]
    hosts.append({"host": "old1", **machine(("7.0", "Tesla V100"), "470.256.02")})
    del hosts[-1]["target"]["glibc"]
    lines = "".join(json.dumps(h) + "\n" for h in hosts)
    ask = ("resolve", "-f", "torch", "--python", "3.11", "--target", "-")
    asked: list[tuple[str, ...]] = [(), ("--plans", "fewest"), ("--plans", "2")]
    said = {p: " ".join(gpuenv(*ask, *p, stdin=lines).out.split()) for p in asked}
    assert "10 hosts, 2 classes, 2 plans (1 with --plans fewest)" in said[()]
    fewest = r"--plans fewest \(1 plan\): because of 1 host \(old1\), 9 other hosts would get torch 2\.\d+\.\d+ PLAN "
    assert re.search(fewest, said[()])
    held = (
        r"because of 1 host \(old1\), 9 other hosts get torch 2\.\d+\.\d+; --plans 2 gives them (2\.\d+\.\d+)"
    )
    told = re.search(rf"10 hosts, 2 classes, 1 plan {held} PLAN ", said["--plans", "fewest"])
    assert told and f"PLAN HOSTS BUILDS AND HOST CLASSES 1 9 torch {told[1]} " in said["--plans", "2"]
    assert re.search(r"driver 470\.256\.02, glibc 2\.\d+ \(old1\).* note: glibc of old1 .*: 2\.", said[()])


@pytest.mark.parametrize(
    ("plans", "code", "said"),
    [
        ("1", 5, "--plans 1: the hosts need at least 2 plans"),
        ("bets", 2, "--plans bets: not a number, best or fewest hint: Did you mean best?"),
        ("0", 2, "--plans 0: not a number"),
    ],
)
def test_plans_that_cannot_be_are_refused(gpuenv, hosts, plans, code, said):
    ran = gpuenv("resolve", "-f", "torch", "--python", "3.10", "--target", "hosts", "--plans", plans)
    assert ran.code == code and said in " ".join(ran.err.split())
