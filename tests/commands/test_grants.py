"""`${VARIABLE}` and files of a stranger's project: what its server is never sent, and what the user can grant."""

import http.server
import threading

import pytest
from environment_facts import HERE, refused
from loopback import Index, serving

SECRET = "s3cr3t-of-the-user"
ASK = ("--framework", "jax", "--device", "cpu", "--python", HERE)


@pytest.fixture
def stranger():
    """A server that the user never named."""
    with serving(Index()) as running:
        yield running


@pytest.fixture
def project(gpuenv, index):
    """A folder with an index of the user's own, and a secret in the environment."""
    index.add_plan(gpuenv("resolve", "--json", *ASK).json)
    index.add("plain", "1.0")
    gpuenv.env |= {"PIP_INDEX_URL": index.url, "SECRET": SECRET}
    return gpuenv


def base(server):
    return server.url.removesuffix("/simple")


def asked(*servers):
    """Every path that was asked for, of all servers."""
    return " ".join(path for server in servers for path in server.requests)


def write(project, name, text):
    path = project.work / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


PLACES = {
    "an index": "--extra-index-url {base}/${{SECRET}}/simple\nplain\n",
    "a find-links page": "--find-links {base}/${{SECRET}}/\nplain\n",
    "a direct address": "x @ {base}/${{SECRET}}/x-1.0-py3-none-any.whl\n",
    "a query": "x @ {base}/x-1.0-py3-none-any.whl?t=${{SECRET}}\n",
    "a user": "x @ http://${{SECRET}}@{host}/x-1.0-py3-none-any.whl\n",
    "a commit": "x @ git+{base}/${{SECRET}}/x\n",
    "an editable commit": "-e git+{base}/x@${{SECRET}}#egg=x\n",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("argv", [("resolve",), ("create", "--dry-run"), ("lock",)], ids=lambda argv: argv[0])
def test_a_strangers_requirements_send_no_variable(project, index, stranger, place, argv):
    text = PLACES[place].format(base=base(stranger), host=base(stranger).removeprefix("http://"))
    write(project, "requirements.txt", text)
    index.requests.clear()
    ran = project(*argv, *ASK, "-r", "requirements.txt")
    assert ran.code == 2 and asked(stranger, index) == ""
    assert "requirements.txt line 1" in ran.err and "${SECRET}" in ran.err and base(stranger) in ran.err
    assert f"GPUENV_GRANT='SECRET={base(stranger)}'" in ran.err and SECRET not in ran.out + ran.err


@pytest.mark.usefixtures("real_uv")
def test_the_hint_of_a_refusal_lets_the_command_pass(project, stranger):
    stranger.root = f"/{SECRET}"
    stranger.add("x", "1.0")
    write(project, "requirements.txt", f"--extra-index-url {base(stranger)}/${{SECRET}}/simple\nx\n")
    hint = project("lock", *ASK, "-r", "requirements.txt", "--json").json["error"]["hint"]
    name, _, value = hint.partition("export ")[2].partition("=")
    project.env[name] = value.strip("'")
    assert project("lock", *ASK, "-r", "requirements.txt").code == 0
    assert SECRET in asked(stranger) and SECRET not in (project.work / "pylock.toml").read_text()


@pytest.mark.parametrize(
    "how", ["PIP_EXTRA_INDEX_URL", "UV_INDEX", "GPUENV_INDEX_PYTORCH", "config.yaml", "--index"]
)
def test_an_origin_of_the_users_own_configuration_is_granted(project, stranger, how, tmp_path):
    stranger.add("x", "1.0")
    write(project, "requirements.txt", f"x @ {base(stranger)}/files/x/x-1.0-py3-none-any.whl?t=${{SECRET}}\n")
    argv = ["lock", *ASK, "-r", "requirements.txt"]
    assert project(*argv).code == 2
    if how == "config.yaml":
        folder = tmp_path / "config" / "gpuenv"
        folder.mkdir(parents=True)
        (folder / how).write_text(f"grants:\n  SECRET: [{base(stranger)}]\n")
        project.env["XDG_CONFIG_HOME"] = str(folder.parent)
    elif how.startswith("--"):
        argv += [how, stranger.url]
    else:
        project.env[how] = f"mine={stranger.url}" if how == "UV_INDEX" else stranger.url
    ran = project(*argv)
    assert "GPUENV_GRANT" not in ran.err and any(SECRET in path for path in stranger.requests), ran.err


@pytest.mark.parametrize("mode", [0o666, 0o644])
def test_grants_of_a_file_that_others_write_are_refused(project, stranger, tmp_path, mode):
    folder = tmp_path / "config" / "gpuenv"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("grants:\n  SECRET: not-an-address\n")
    (folder / "config.yaml").chmod(mode)
    project.env["XDG_CONFIG_HOME"] = str(folder.parent)
    ran = project("resolve", *ASK)
    assert "config.yaml" in ran.err
    assert ran.code == (0 if mode == 0o666 else 2)  # what others can write is left out, with a note


@pytest.mark.parametrize(
    "text", ["SECRET", "SECRET=host", "=http://h", "SECRET=http://u@h", "secret=http://h", "A=ftp://h"]
)
def test_a_malformed_grant_is_an_error(project, text):
    project.env["GPUENV_GRANT"] = text
    write(project, "requirements.txt", "x @ http://127.0.0.1:9/${SECRET}/x-1.0-py3-none-any.whl\n")
    ran = project("resolve", *ASK, "-r", "requirements.txt")
    assert ran.code == 2 and "GPUENV_GRANT" in ran.err and "NAME=https://HOST" in ran.err


def test_projects_and_their_tables_send_no_variable(project, stranger):
    address = f"{base(stranger)}/${{SECRET}}"
    whole = '[project]\nname = "p"\nversion = "1"\ndependencies = [{}]\n{}'
    for requires, rest in (
        ("", f'[[tool.uv.index]]\nurl = "{address}/simple"\n'),
        ("", f'[[tool.uv.index]]\nurl = "{address}/"\nformat = "flat"\n'),
        ('"x"', f'[tool.uv.sources]\nx = {{ url = "{address}/x-1.0-py3-none-any.whl" }}\n'),
        ('"x"', f'[tool.uv.sources]\nx = {{ git = "{address}/x" }}\n'),
        (f'"x @ {address}/x-1.0-py3-none-any.whl"', ""),
    ):
        write(project, "pyproject.toml", whole.format(requires, rest))
        ran = refused(project("resolve", *ASK, "--project", "."), 2)
        assert "GPUENV_GRANT='SECRET=" in ran.err and "pyproject.toml" in ran.err
        assert asked(stranger) == ""
    (project.work / "pyproject.toml").unlink()
    packages = f'frameworks: ["jax"]\ndevice: "cpu"\npackages: ["x @ {address}/x-1.0-py3-none-any.whl"]\n'
    write(project, "gpuenv.yaml", packages)
    for argv in (["lock"], ["create"], ["add", "plain"], ["sync"], ["bundle", "stick"]):
        assert "gpuenv.yaml line 3" in refused(project(*argv), 2).err and asked(stranger) == ""


@pytest.mark.parametrize(
    "line",
    [
        "x @ http://${SECRET}.localhost:9/x-1.0-py3-none-any.whl",
        "x @ http://127.0.0.1:${SECRET}/x-1.0-py3-none-any.whl",
        "x @ ${SECRET}/x-1.0-py3-none-any.whl",
        "x @ http://127.0.0.1:9\\@127.0.0.1:10/${SECRET}/x-1.0-py3-none-any.whl",
        "--extra-index-url http://127.0.0.1:9/'x'http://127.0.0.1:10/${SECRET}",
        "--index-url http://127.0.0.1:9/\\ http://127.0.0.1:10/${SECRET}",
        "plain==${SECRET}",
        "${SECRET}",
        "plain[${SECRET}]",
        "-r ${SECRET}",
        "./${SECRET}",
        "x @ file:///${SECRET}/x-1.0-py3-none-any.whl",
    ],
)
def test_a_variable_decides_no_server_name_or_version(project, index, line):
    write(project, "requirements.txt", line + "\n")
    project.env["GPUENV_GRANT"] = "SECRET=http://127.0.0.1:10"
    index.requests.clear()
    ran = project("resolve", *ASK, "-r", "requirements.txt")
    assert ran.code == 2 and "requirements.txt line 1" in ran.err
    assert SECRET not in ran.out + ran.err + asked(index)


def test_a_host_in_a_variable_is_granted_by_its_value(project, stranger):
    stranger.add("x", "1.0")
    project.env["HOST"] = base(stranger).removeprefix("http://")
    write(project, "requirements.txt", "--extra-index-url http://${HOST}/simple\nx\n")
    ran = refused(project("lock", *ASK, "-r", "requirements.txt"), 2)
    assert 'GPUENV_GRANT="HOST=http://${HOST}"' in ran.err and project.env["HOST"] not in ran.err
    project.env["GPUENV_GRANT"] = f"HOST={base(stranger)}"
    assert project("lock", *ASK, "-r", "requirements.txt").code == 0
    assert "http://${HOST}/simple" in (project.work / "pylock.toml").read_text()


def test_a_strangers_lock_sends_no_variable(project, index, stranger):
    """Its hashes can be genuine: nothing fails."""
    stranger.root = f"/{SECRET}"
    stranger.add("x", "1.0")
    write(
        project, "gpuenv.yaml", f'frameworks: ["jax"]\ndevice: "cpu"\npython: "{HERE}"\npackages: ["plain"]\n'
    )
    write(project, "requirements.txt", f"x @ {base(stranger)}/${{SECRET}}/files/x/x-1.0-py3-none-any.whl\n")
    project.env["GPUENV_GRANT"] = f"SECRET={base(stranger)}"
    assert project("lock", *ASK, "-r", "requirements.txt", "--output", "pylock.toml").code == 0
    assert "${SECRET}" in (project.work / "pylock.toml").read_text()
    lines = (project.work / "pylock.toml").read_text().splitlines()
    number = next(n for n, line in enumerate(lines, 1) if "${SECRET}" in line)
    del project.env["GPUENV_GRANT"]
    stranger.requests.clear()
    for argv in (
        ["create", "--frozen", "--no-verify"],
        ["create", "--lock", "pylock.toml", "--no-verify"],
        ["create", "--lock", "pylock.toml", "--dry-run"],
        ["bundle", "stick", "--lock", "pylock.toml"],
        ["export", "--lock", "pylock.toml", "--format", "requirements"],
    ):
        ran = project(*argv)
        assert ran.code == 2 and asked(stranger) == "", (argv, ran.err)
        assert f"pylock.toml line {number}: " in ran.err and f"SECRET={base(stranger)}" in ran.err, ran.err
    project.env["GPUENV_GRANT"] = f"SECRET={base(stranger)}"
    ran = project("create", "--lock", "pylock.toml", "--no-verify")
    assert ran.code == 0 and SECRET in asked(stranger), ran.err
    assert ran.err.index(base(stranger)) < ran.err.index("installing")
    # an environment that was cloned with its project
    del project.env["GPUENV_GRANT"]
    stranger.requests.clear()
    for path in project.work.glob(".venv/lib/python*/site-packages/x.py"):
        path.unlink()
    assert SECRET not in asked(stranger) + project("repair").err + asked(stranger)


def test_create_names_the_servers_of_a_lock(project, index, stranger):
    stranger.add("x", "1.0")
    write(project, "requirements.txt", f"x @ {base(stranger)}/files/x/x-1.0-py3-none-any.whl\n")
    assert project("lock", *ASK, "-r", "requirements.txt", "--output", "pylock.toml").code == 0
    dry = project("create", "--lock", "pylock.toml", "--dry-run")
    assert dry.code == 0 and base(stranger) in dry.err and "plain" not in dry.err
    said = project("create", "--lock", "pylock.toml", "--dry-run", "--json").json
    assert any(base(stranger) in note for note in said["notes"])
    project.env["PIP_EXTRA_INDEX_URL"] = stranger.url
    said = project("create", "--lock", "pylock.toml", "--dry-run", "--json").json
    assert not any(base(stranger) in note for note in said["notes"])


def test_what_uv_reads_itself_gets_no_variable(project, stranger):
    """uv replaces variables in the requirements of folders and archives."""
    stranger.add("x", "1.0", requires=(f"y @ {base(stranger)}/${{SECRET}}/y-1.0-py3-none-any.whl",))
    write(project, "requirements.txt", f"x @ {base(stranger)}/files/x/x-1.0-py3-none-any.whl\n")
    ran = project("lock", *ASK, "-r", "requirements.txt")
    assert SECRET not in asked(stranger) + ran.out + ran.err
    folder = f'[project]\nname = "lib"\nversion = "1"\ndependencies = ["y @ {base(stranger)}/${{SECRET}}/y-1.0-py3-none-any.whl"]\n'
    write(project, "lib/pyproject.toml", folder)
    write(project, "requirements.txt", "./lib\n")
    ran = project("resolve", *ASK, "-r", "requirements.txt")
    assert SECRET not in asked(stranger) + ran.out + ran.err


def test_passwords_for_an_index_of_the_user_stay_with_it(project):
    """uv sends UV_INDEX_NAME_PASSWORD to the index of that name, and a project can state the address of pytorch."""
    seen = []

    class Watching(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append((self.path, self.headers.get("Authorization")))
            self.send_error(401)

        do_HEAD = do_GET  # noqa: N815  # the name that the base class calls

        def log_message(self, *_):
            pass

    project.env |= {"UV_INDEX_PYTORCH_USERNAME": "me", "UV_INDEX_PYTORCH_PASSWORD": SECRET}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Watching) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/whl"
        write(
            project,
            "gpuenv.yaml",
            f'frameworks: ["torch"]\nindex: "pytorch"\nindexes:\n  pytorch: "{address}"\n',
        )
        argv = ("lock", "--driver", "580.65.06", "--gpu", "8.0", "--python", "3.12")
        project(*argv)
        assert seen and not any(header for _, header in seen)
        seen.clear()
        project.env["GPUENV_INDEX_PYTORCH"] = address
        project(*argv)
        assert any(header for _, header in seen)
        server.shutdown()


# --- files ----------------------------------------------------------------------------------------

TOKEN = "hf-private-t0ken"


@pytest.fixture
def outside(project, tmp_path):
    """A file of the user's, beside the project."""
    path = tmp_path / "home" / "private"
    path.mkdir(parents=True, exist_ok=True)
    (path / "token").write_text(f"{TOKEN}\n")
    return path / "token"


def out(project, outside):
    return f"../{outside.relative_to(project.work.parent)}"


FILES = {
    "-r": {"requirements.txt": "-r {outside}\n"},
    "-c": {"requirements.txt": "-c {outside}\n"},
    "a link": {"requirements.txt": "-r linked.txt\n", "linked.txt": None},
    "an absolute path": {"requirements.txt": "-r {absolute}\n"},
    "a file address": {"requirements.txt": "-r file://{absolute}\n"},
    "find-links": {"requirements.txt": "--find-links {outside}\nplain\n"},
    "a wheel": {"requirements.txt": "{folder}/x-1.0-py3-none-any.whl\n"},
    "a commit": {"requirements.txt": "x @ git+file://{absolute}/x@main\n"},
    "itself": {"requirements.txt": None},
}


@pytest.mark.parametrize("case", FILES)
def test_a_requirements_file_leads_only_into_its_tree(project, index, outside, case):
    (outside.parent / "x-1.0-py3-none-any.whl").write_bytes(b"")
    for name, text in FILES[case].items():
        if text is None:
            (project.work / name).symlink_to(outside)
        else:
            places = {
                "outside": out(project, outside),
                "absolute": outside,
                "folder": out(project, outside.parent),
            }
            write(project, name, text.format(**places))
    index.requests.clear()
    for argv in (["resolve", *ASK], ["lock", *ASK]):
        ran = project(*argv, "-r", "requirements.txt")
        assert ran.code == 2 and "leads out of" in ran.err and "requirements.txt" in ran.err, ran.err
        assert TOKEN not in ran.out + ran.err + asked(index)


PROJECT = '[project]\nname = "p"\nversion = "1"\n'
TABLES = {
    "dynamic": 'dynamic = ["dependencies"]\n[tool.setuptools.dynamic]\ndependencies = {{ file = ["{outside}"] }}\n',
    "hatch": 'dynamic = ["dependencies"]\n[tool.hatch.metadata.hooks.requirements_txt]\nfiles = ["{outside}"]\n',
    "sources": 'dependencies = ["x"]\n[tool.uv.sources]\nx = {{ path = "{folder}" }}\n',
    "flat index": '[[tool.uv.index]]\nurl = "{outside}"\nformat = "flat"\n',
    "a dependency": 'dependencies = ["x @ file://{absolute}/x-1.0-py3-none-any.whl"]\n',
}


@pytest.mark.parametrize("case", TABLES)
def test_a_pyproject_leads_only_into_its_tree(project, index, outside, case):
    (outside.parent / "x-1.0-py3-none-any.whl").write_bytes(b"")
    (outside.parent / "setup.py").write_text("")
    places = {
        "outside": out(project, outside),
        "absolute": outside.parent,
        "folder": out(project, outside.parent),
    }
    write(project, "pyproject.toml", PROJECT + TABLES[case].format(**places))
    index.requests.clear()
    ran = refused(project("resolve", *ASK, "--project", "."), 2)
    assert "leads out of" in ran.err and TOKEN not in ran.out + ran.err + asked(index)


@pytest.mark.parametrize(
    "line",
    [
        'requirements: ["{outside}"]',
        'find_links: ["{outside}"]',
        'project: "{outside}/.."',
        'targets: {{t: {{file: "{outside}"}}}}',
    ],
)
def test_a_gpuenv_yaml_leads_only_into_its_tree(project, index, outside, line):
    write(
        project,
        "gpuenv.yaml",
        f'frameworks: ["jax"]\ndevice: "cpu"\n{line.format(outside=out(project, outside))}\n',
    )
    index.requests.clear()
    ran = refused(project("lock", *(["--target", "t"] if "targets" in line else [])), 2)
    assert "leads out of" in ran.err and TOKEN not in ran.out + ran.err + asked(index)


@pytest.mark.parametrize("line", ["-r {outside}", "-c {outside}"])
def test_init_reads_no_file_outside_of_the_folder(project, outside, line):
    text = f"dependencies:\n  - pip:\n    - torch\n    - {line.format(outside=out(project, outside))}\n"
    write(project, "environment.yml", text)
    (project.work / "requirements.txt").symlink_to(outside)
    ran = project("init")
    assert "leads out of" in ran.out + ran.err, ran.err
    assert TOKEN not in ran.out + ran.err + (project.work / "gpuenv.yaml").read_text()


def test_a_member_of_a_repository_uses_files_of_its_root(project):
    write(project, "base.txt", "plain\n")
    write(project, "member/requirements.txt", "-r ../base.txt\n")
    argv = ["resolve", *ASK, "-r", "member/requirements.txt"]
    assert project(*argv).code == 2
    (project.work / ".git").mkdir()
    assert project(*argv).code == 0


def test_what_the_user_types_may_lie_anywhere(project, index, outside):
    outside.write_text("-r beside.txt\n")
    (outside.parent / "beside.txt").write_text("plain\n")
    assert project("lock", *ASK, "-r", str(outside)).code == 0
    (outside.parent / "beside.txt").write_text(f"-r {project.work / 'requirements.txt'}\n")
    write(project, "requirements.txt", "plain\n")
    assert project("lock", *ASK, "-r", str(outside)).code == 2
