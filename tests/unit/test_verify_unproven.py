"""No verdict of success where nothing of the environment was run."""

from framework_envs import venv
from rows import rows
from verify_stub import fresh_state

from provision.export.pages import verdict_page
from provision.model import StageResult, Verdict
from provision.verify import make_verdict


def test_an_empty_environment_is_unproven_and_ends_with_8(gpuenv):
    env, _ = venv(gpuenv.work / "empty")
    ran = gpuenv("verify", str(env), "--quick", "--device", "cpu", "--json", "--report", "page.html")
    assert (ran.code, ran.json["verdict"]) == (8, "unproven")
    assert {s["status"] for s in ran.json["stages"]} == {"skip"}
    assert "Install a framework in this environment" in ran.json["hint"]
    html = (gpuenv.work / "page.html").read_text()
    assert '<p class="mark warn">unproven</p>' in html
    shown = gpuenv("verify", str(env), "--quick", "--device", "cpu")
    assert shown.code == 8
    assert "verdict: unproven: " in shown.out
    assert "works" not in shown.out


@rows(
    ("device", "stages", "outcome"),
    [
        ("cuda", [("driver", "pass"), ("libraries", "pass"), ("lock", "pass")], "unproven"),
        ("cuda", [("driver", "pass"), ("runtime", "pass")], "works"),
        ("cpu", [("driver", "skip"), ("framework", "warn"), ("lock", "pass")], "unproven"),
        ("cpu", [("framework", "pass"), ("convolution", "skip")], "cpu"),
        ("cpu", [("framework", "warn"), ("convolution", "pass")], "cpu"),
        ("cpu", [("framework", "pass"), ("convolution", "fail")], "fails"),
        ("cpu", [("framework", "skip"), ("lock", "fail")], "fails"),
    ],
)
def test_a_proof_that_ran_nothing_is_unproven(device, stages, outcome):
    ended = [StageResult(stage=s, status=status, detail="") for s, status in stages]
    state = fresh_state(device, stages=ended)
    state.paths.frameworks["torch"] = "/env/torch.py"
    verdict = make_verdict(state)
    assert verdict.verdict == outcome
    assert (verdict.hint is None) == (outcome in ("works", "cpu"))
    assert f">{'works on the CPU' if outcome == 'cpu' else outcome}</p>" in verdict_page(verdict, "now")
    assert isinstance(verdict, Verdict)
