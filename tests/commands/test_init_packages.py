"""`gpuenv init`: packages, bounds, CUDA and Python that it takes over from a folder's files and imports."""

import json
import re
import textwrap

import pytest
from environment_facts import ok, refused
from rows import rows

from provision.config.file import read_config
from provision.errors import UsageError
from provision.requirements import files, imports
from provision.requirements.sort import read_project_requirements


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def found(gpuenv, files):
    """What `gpuenv init` writes for a folder with these files: gpuenv.yaml as values, as text, and the notes."""
    write(gpuenv.work, files)
    ran = ok(gpuenv("init", "--json"))
    path = gpuenv.work / "gpuenv.yaml"
    return read_config(path), path.read_text(), ran.json["notes"]


# --- conda's environment.yml ---------------------------------------------------------------------

_DIT = """\
    name: DiT
    channels:
      - pytorch
      - nvidia
    dependencies:
      - python >= 3.8
      - pytorch >= 1.13
      - torchvision
      - pytorch-cuda=11.7
      - pip:
        - timm
        - diffusers
        - accelerate
    """


def test_bounds_cuda_python_and_wheels_are_taken_over(gpuenv):
    config, text, notes = found(gpuenv, {"environment.yml": _DIT})
    assert config.frameworks == ("torch>=1.13",)
    assert (config.cuda, config.python) == ("11.7", ">=3.8")
    assert config.packages == ("torchvision", "timm", "diffusers", "accelerate")
    assert '"timm"  # environment.yml line 11' in text
    assert any(note.startswith("environment.yml: the channels pytorch, nvidia ") for note in notes)


def test_every_kind_of_entry_is_taken_over_or_named(gpuenv):
    config, _, notes = found(
        gpuenv,
        {
            "environment.yaml": """\
                channels: [defaults]
                dependencies:
                  - python=3.8.5
                  - pip=20.3
                  - cudatoolkit=11.3
                  - pytorch=1.11.0
                  - conda-forge::opencv=4.5
                  - numpy=1.19.2=py38h54aff64_0
                  - pandas=1.3|1.4
                  - pillow=8.0
                  - ffmpeg
                  - libunknown-thing=3
                  - cudatoolkit
                  - pip:
                    - einops==0.3.0
                    - -e git+https://example.com/taming.git@master#egg=taming-transformers
                    - -r more.txt
                    - --extra-index-url https://example.com/simple
                    - no such requirement
                    - -e .
                variables: {A: b}
                """,
            "more.txt": "tqdm\npillow>=9\n",
            "setup.py": "from setuptools import setup\nsetup(name='x', install_requires=['torch', 'numpy', 'einops'])\n",
        },
    )
    assert config.frameworks == ("torch==1.11.0",)
    assert (config.python, config.cuda, config.project) == ("3.8", "11.3", ".")
    assert config.requirements == ("more.txt",)
    assert config.packages == (
        "opencv-python==4.5.*",
        "numpy==1.19.2",
        "einops==0.3.0",
        "taming-transformers @ git+https://example.com/taming.git@master",
    )
    said = "\n".join(notes)
    for entry in ("pip=20.3", "pandas=1.3|1.4", "ffmpeg", "libunknown-thing=3", "cudatoolkit (environment.yaml line 13) is ignored", "https://example.com/simple",
                  "no such requirement", "variables", "channels defaults"):  # fmt: skip
        assert entry in said, entry
    assert len([note for note in notes if "environment.yaml" in note and "line" in note]) == 8


@rows(
    ("conda", "expected"),
    [
        ("", ""),
        ("=2.1", "==2.1.*"),
        ("=2", "==2.*"),
        ("=2.1.*", "==2.1.*"),
        ("=1.11.0", "==1.11.0"),
        ("==1.11.0", "==1.11.0"),
        (" 1.11.0", "==1.11.0"),
        ("2.1.*", "==2.1.*"),
        (">=2.1", ">=2.1"),
        (" >= 2.1 , < 3", "<3,>=2.1"),
        (">=2.1.*", ">=2.1"),
        ("~=2.1", "~=2.1"),
        ("!=2.1.*", "!=2.1.*"),
        ("=1.19.2=py38_0", "==1.19.2"),
        (" 1.19.2 py38_0", "==1.19.2"),
        ("*", ""),
        ("=2.1|2.2", None),
        (">=2.1|<1", None),
        ("[version='>=2']", None),
        ("=", None),
        ("nonsense", None),
    ],
)
def test_a_conda_version_is_converted_to_pep_440(conda, expected):
    assert files.convert_specifier(conda)[0] == expected


def test_cuda_comes_from_a_build_string_and_cpu_from_cpuonly(gpuenv):
    config, _, _ = found(
        gpuenv,
        {"environment.yml": "dependencies:\n - pytorch=1.11.0=py3.8_cuda11.3_cudnn8.2.0_0\n - cpuonly\n"},
    )
    assert (config.frameworks, config.cuda, config.device) == (("torch==1.11.0",), "11.3", "cpu")


def test_bounds_of_a_requirements_file_stand_before_those_of_an_environment_file(gpuenv):
    config, _, notes = found(
        gpuenv,
        {
            "requirements.txt": "torch>=2.0\nnumpy<2\n",
            "environment.yml": "dependencies: [pytorch=1.11, numpy=1.19, scipy]\n",
        },
    )
    assert config.frameworks == ("torch",) and config.packages == ("scipy",)
    assert [n for n in notes if n.startswith("torch==1.11.* (environment.yml line 1) is not listed")]


def test_bounds_on_python_are_kept_by_resolve(gpuenv):
    found(gpuenv, {"environment.yml": "dependencies: ['python<3.11', jax]\n"})
    ran = ok(gpuenv("resolve", "--json", "--device", "cpu"))
    assert ran.json["python"] in ("3.9", "3.10")
    config = gpuenv.work / "gpuenv.yaml"
    config.write_text(config.read_text().replace('"<3.11"', '"<3.9,>=3.4"'))
    ran = refused(gpuenv("resolve", "--json", "--device", "cpu"), 5)
    assert "python in gpuenv.yaml requires <3.9,>=3.4" in json.dumps(ran.json)
    assert gpuenv("resolve", "--json", "--device", "cpu", "--python", "3.12").code == 0


@pytest.mark.parametrize("python", [">=3.8", "3.11", "3.11.4", ">=3.9,<3.13", "==3.10.*", "~=3.10", "!=3.11"])
def test_gpuenv_yaml_accepts_these_forms_of_python(tmp_path, python):
    (tmp_path / "gpuenv.yaml").write_text(f'frameworks: [jax]\npython: "{python}"\n')
    assert read_config(tmp_path / "gpuenv.yaml").python == python


# --- what the files of a project decide -----------------------------------------------------------

_PYPROJECT = '[build-system]\nrequires = ["hatchling"]\n[project]\nname = "mine"\nversion = "1"\n'
_NOTEBOOK = json.dumps(
    {
        "cells": [
            {
                "cell_type": "code",
                "source": [
                    "!pip install keras-hub\n",
                    "import torch, keras_hub\nimport matplotlib.pyplot as plt\n",
                ],
            }
        ]
    }
)
_SETUP = "from setuptools import setup\nsetup(name='mine', py_modules=['mine'], {})\n"
# Files -> values of gpuenv.yaml (those without a key are empty), and words that are printed
CASES = {
    "jax beside tensorflow-cpu": (
        {"requirements.txt": "numpy\njax\ntensorflow-cpu\n", "a.py": "import jax, tensorflow\n"},
        {"frameworks": ("jax",), "requirements": ("requirements.txt",)}, "jax (requirements.txt line 2)",
    ),
    "jax of a setup.py beside a tensorflow-cpu of a file": (
        {"setup.py": _SETUP.format("install_requires=[\n'jax',\n'tensorflow-cpu'\n]"), "mine.py": "import jax, tensorflow\n"},
        {"frameworks": ("jax",), "project": "."}, "jax (setup.py line 3)",
    ),
    "jax and tensorflow": (
        {"setup.py": _SETUP.format("install_requires=['jax', 'tensorflow']"), "mine.py": "import jax, tensorflow\n"},
        {"frameworks": ("jax", "tensorflow"), "project": "."}, "tensorflow (setup.py line 2)",
    ),
    "only for the CPU": (
        {"requirements.txt": "tensorflow-cpu\n"},
        {"frameworks": ("tensorflow",), "device": "cpu", "requirements": ("requirements.txt",)},
        "device cpu (requirements.txt line 1)",
    ),
    "a program for a framework that only documents name, and a CPU build": (
        {"requirements.txt": "tensorflow-cpu\n", "train.py": "import jax, tensorflow\n"},
        {"frameworks": ("jax",), "requirements": ("requirements.txt",)}, "jax (imported in train.py)",
    ),
    "a CPU build of Linux beside one of macOS": (
        {"requirements.txt": "tensorflow-cpu; sys_platform != 'darwin'\ntensorflow; sys_platform == 'darwin'\ntorch\n"},
        {"frameworks": ("torch",), "requirements": ("requirements.txt",)}, "torch (requirements.txt line 3)",
    ),
    "onnxruntime-gpu in a file": (
        {"requirements.txt": "onnxruntime-gpu\n"}, {"frameworks": ("onnxruntime",), "requirements": ("requirements.txt",)},
        "onnxruntime (requirements.txt line 1)",
    ),
    "onnxruntime imported": ({"a.py": "import onnxruntime\n"}, {"frameworks": ("onnxruntime",)}, "imported in a.py"),
    "onnxruntime beside torch": (
        {"requirements.txt": "torch\nonnxruntime\n"}, {"frameworks": ("torch",), "requirements": ("requirements.txt",)}, "",
    ),
    "onnxruntime declared, and torch in one script": (
        {"requirements.txt": "onnxruntime\n", "a.py": "import onnxruntime\n", "b.py": "import onnxruntime\n", "export.py": "import torch\n"},
        {"frameworks": ("onnxruntime",), "requirements": ("requirements.txt",)}, "torch is imported in export.py, but not declared",
    ),
    "the extra for a GPU": (
        {"pyproject.toml": _PYPROJECT + "[project.optional-dependencies]\ncpu = ['onnxruntime']\ngpu = ['onnxruntime-gpu']\n",
         "mine/__init__.py": "import onnxruntime\n"},
        {"frameworks": ("onnxruntime",), "project": ".", "extras": ("gpu",)}, "extra gpu, pyproject.toml line 8",
    ),
    "several extras for a GPU, and one for the CPU that a document installs first": (
        {"pyproject.toml": _PYPROJECT + "[project.optional-dependencies]\ncpu = ['onnxruntime']\ngpu = ['onnxruntime-gpu']\n"
         "gpu-cu11 = ['onnxruntime-gpu<1.20']\n", "README.md": "pip install -e '.[cpu]'\npip install -e '.[gpu]'\n",
         "mine/__init__.py": "import onnxruntime\n"},
        {"frameworks": ("onnxruntime",), "project": ".", "extras": ("gpu",)}, "extra gpu, pyproject.toml line 8",
    ),
    "several extras": (
        {"pyproject.toml": _PYPROJECT + "[project.optional-dependencies]\nintelgpu = ['torch']\ncu126 = ['torch']\ncu128 = ['torch']\n",
         "mine/__init__.py": "import torch\n"},
        {"frameworks": ("torch",), "project": "."}, "the extras cu126, cu128 bring frameworks: choose one",
    ),
    "the extra of the framework that programs import, with what it brings": (
        {"pyproject.toml": _PYPROJECT + "[project.optional-dependencies]\nfast = ['onnxruntime-gpu']\nall = ['mine[torch]']\n"
         "torch = ['torch', 'timm']\n", "README.md": "pip install -e '.[all]'\npip install -e '.[fast]'\n",
         "mine/__init__.py": "import torch, timm, onnxruntime\n", "mine/b.py": "import torch, numpy\n"},
        {"frameworks": ("torch",), "project": ".", "extras": ("all",)}, "undeclared numpy\n",
    ),
    "an import that only another extra declares": (
        {"pyproject.toml": _PYPROJECT + "[project.optional-dependencies]\ntorch = ['torch']\nflax = ['flax', 'jax', 'einshape']\n",
         "mine/__init__.py": "import torch\n", "mine/a.py": "import torch, flax, einshape, numpy\n"},
        {"frameworks": ("torch",), "project": ".", "extras": ("torch",)},
        "undeclared einshape (extra flax), flax (extra flax), numpy\n",
    ),
    "a framework that only another extra declares": (
        {"pyproject.toml": _PYPROJECT + "[project.optional-dependencies]\ntorch = ['torch']\nflax = ['jax']\n",
         "mine/__init__.py": "import torch\n", "mine/a.py": "import torch, jax\n"},
        {"frameworks": ("torch",), "project": ".", "extras": ("torch",)},
        "jax is imported in mine/a.py, but only extra flax declares it",
    ),
    "an extra whose name no requirement can have": (
        {"setup.py": _SETUP.format("install_requires=['six'], extras_require={'tensorflow with gpu': ['tensorflow-gpu']}"),
         "mine.py": "import tensorflow, six\n"},
        {"frameworks": ("tensorflow",), "project": "."}, "tensorflow (imported in mine.py)",
    ),
    "projects beside each other": (
        {"one/pyproject.toml": _PYPROJECT, "one/one/a.py": "import torch, numpy\n", "packages/two/setup.py": _SETUP.format(""),
         "docs/setup.py": _SETUP.format("")},
        {"frameworks": ("torch",)}, "not read one/pyproject.toml, packages/two/setup.py",
    ),
    "a Pipfile": (
        {"Pipfile": "[packages]\ntensorflow = '~=2.9.1'\nnumpy = '*'\nopencv-python-headless = {version = '==4.6.0.66'}\n"
         "[dev-packages]\npytest = '*'\n[requires]\npython_version = '3.9'\n", "a.py": "import tensorflow, cv2\n"},
        {"frameworks": ("tensorflow~=2.9.1",), "packages": ("numpy", "opencv-python-headless==4.6.0.66"), "python": "3.9"},
        "tensorflow~=2.9.1 (Pipfile line 2)",
    ),
    "only a Dockerfile": (
        {"Dockerfile": "FROM x\n# RUN pip install six\nRUN apt-get update && pip3 install -U pip -i https://x torch==2.1.0 \\\n 'numpy<2' "
         "$MORE && rm x\nRUN pip install -r a.txt -e . numpy==1.0 uvicorn[standard]\n", "serve.py": "import torch, fastapi\n"},
        {"frameworks": ("torch==2.1.0",), "packages": ("numpy<2", "uvicorn[standard]", "fastapi")},
        "numpy<2 (Dockerfile line 3), uvicorn[standard] (Dockerfile line 5), fastapi (imported in serve.py)",
    ),
    "only notebooks": (
        {"a/b.ipynb": json.dumps({"cells": [
            {"cell_type": "code", "source": ["import pandas\n", "x = 1\n"]},
            {"cell_type": "code", "source": ["!pip install -q tensorflow==2.12.0\n", "%pip install einops\n", "# !pip install six"]},
        ]})},
        {"frameworks": ("tensorflow==2.12.0",), "packages": ("einops", "pandas")}, "einops (a/b.ipynb cell 2)",
    ),
    "the first extra that a document installs": (
        {"pyproject.toml": _PYPROJECT + "[project.optional-dependencies]\ncore = ['torch']\nall = ['mine[core]', 'jax']\n",
         "README.md": "pip install mine[all]\n", "Dockerfile": "RUN pip install mine[core]\n", "mine/__init__.py": ""},
        {"frameworks": ("jax", "torch"), "project": ".", "extras": ("all",)}, "torch (extra all",
    ),
    "a file for another device that the README names first": (
        {"README.md": "pip install -r requirements_cpu.txt\npip install -r requirements_cu128.txt\n",
         "requirements_cpu.txt": "numpy\n", "requirements_cu128.txt": "numpy\n", "requirements_rocm.txt": "",
         "a.py": "import torch, torchaudio, tqdm\n"},
        {"frameworks": ("torch",), "requirements": ("requirements_cu128.txt",), "packages": ("torchaudio",)},
        "torchaudio (imported in a.py)",
    ),
    "the release that a document installs by hand": (
        {"README.md": "Use torch.\n  pip3 install -U torch==2.4.0+cu118 torchvision --index-url https://host/cu118\n",
         "setup.sh": "conda install pytorch=2.4 -c pytorch\n", "requirements.txt": "numpy\n", "a.py": "import torch\n"},
        {"frameworks": ("torch",), "requirements": ("requirements.txt",)},
        "README.md line 2 installs torch==2.4.0+cu118 torchvision",
    ),
    "a file beside the main one that a workflow installs": (
        {".github/workflows/test.yml": "- pip install -r lib/requirements_eval.txt\n",
         "lib/requirements_eval.txt": "torch\npesq\n", "lib/requirements.txt": "torch\n"},
        {"frameworks": ("torch",), "requirements": ("lib/requirements.txt",)}, "beside lib/requirements_eval.txt",
    ),
    "projects that are packages": (
        {"one/requirements.txt": "tensorflow\n", "one/__init__.py": "", "one/a.py": "import tensorflow, numpy\n",
         "two/requirements.txt": "jax\n"},
        {"frameworks": ("tensorflow",)}, "run gpuenv init in the folder of one",
    ),
    "names that declared packages have in theirs": (
        {"requirements.txt": "torch\npython-bidi\nsurya-ocr\nai2-olmo-core\n", "a.py": "import bidi, olmo_core, surya.x, rya\n"},
        {"frameworks": ("torch",), "requirements": ("requirements.txt",)}, "undeclared rya\n",
    ),
    "a file that the README installs": (
        {"README.md": "# Mine\npip install -r big/requirements.txt\n", "big/requirements.txt": "timm\n",
         "big/a.py": "import jax\n", "other/requirements.txt": "torch\n", "other/a.py": "import torch\n"},
        {"frameworks": ("jax",), "requirements": ("big/requirements.txt",)}, "not read other/requirements.txt",
    ),
    "a file that setup.py reads": (
        {"setup.py": "from setuptools import setup\nsetup(install_requires=open('requirements/run.txt').read())\n",
         "requirements/run.txt": "torch\n", "requirements/other.txt": "numpy\n"},
        {"frameworks": ("torch",), "requirements": ("requirements/run.txt",), "project": "."}, "requirements/run.txt (setup.py line 2)",
    ),
    "a file that contradicts the project": (
        {"pyproject.toml": _PYPROJECT + "dependencies = ['torch>=2.6', 'tqdm<5,>=4']\n", "mine/__init__.py": "",
         "requirements.txt": "torch<=2.2.0\ntqdm\n"},
        {"frameworks": ("torch",), "project": "."}, "requirements.txt is not listed: torch<=2.2.0 (requirements.txt line 1) contradicts",
    ),
    "a file that agrees with the project": (
        {"pyproject.toml": _PYPROJECT + "dependencies = ['torch>=2.6', 'tqdm<5,>=4']\n", "mine/__init__.py": "",
         "requirements.txt": "torch==2.7.0\ntqdm==4.66; python_version < '3.9'\n"},
        {"frameworks": ("torch",), "project": ".", "requirements": ("requirements.txt",)}, "",
    ),
    "a folder of requirements": (
        {"requirements/full/requirements.txt": "torch\n", "requirements/dev.txt": "pytest\n", "a.py": "import torch, timm\n"},
        {"frameworks": ("torch",), "requirements": ("requirements/full/requirements.txt",)}, "not read requirements/dev.txt",
    ),
    "one file with another name": (
        {"requirements_cu128_py312.txt": "torch\n"},
        {"frameworks": ("torch",), "requirements": ("requirements_cu128_py312.txt",)}, "the only file",
    ),
    "a file of the documentation": (
        {"pyproject.toml": _PYPROJECT + "dependencies = ['torch']\n", "mine/__init__.py": "", "docs-requirements.txt": "jax\n"},
        {"frameworks": ("torch",), "project": "."}, "not read docs-requirements.txt",
    ),
    "guarded and nested imports": (
        {"requirements.txt": "torch\n",
         "a.py": "import numpy\nif x():\n    import mlflow\ntry:\n    import wandb\nexcept ImportError:\n    wandb = None\n"
         'def f():\n    import onnx\n"""\nimport clearml\n"""\n'},
        {"frameworks": ("torch",), "requirements": ("requirements.txt",)}, "undeclared numpy\n",
    ),
    "two modules of one package that is not declared": (
        {"requirements.txt": "torch\n", "a.py": "import torch, attr, attrs\n"},
        {"frameworks": ("torch",), "requirements": ("requirements.txt",)}, "undeclared attrs\n",
    ),
    "nothing declared": (
        {"train.py": "import torch, numpy as np, os, data\nif True:\n    import wandb\nfrom PIL import (\n  Image, # x\n)\n",
         "data/prepare.py": "import requests, torchvision\nfrom train import x\nimport strange_thing\n",
         "tests/test_a.py": "import pytest, sklearn\n"},
        {"frameworks": ("torch",), "packages": ("numpy", "pillow", "requests", "torchvision")}, "undeclared strange_thing\n",
    ),
    "a repository without the name of its package": (
        {"requirements.txt": "torch\ngit+https://host/who/monotonic_align.git@main\n", "a.py": "import monotonic_align, numpy\n"},
        {"frameworks": ("torch",), "requirements": ("requirements.txt",)}, "undeclared numpy\n",
    ),
    "several projects": (
        {"mnist/requirements.txt": "torch\n", "vae/requirements.txt": "torch\n", "mnist/main.py": "import torch\n"},
        {"frameworks": ("torch",)}, "run gpuenv init in the folder of one",
    ),
    "a project that computes its requirements": (
        {"setup.py": "from setuptools import setup\nsetup(install_requires=find())\n", "ci/a.py": "import torch, numpy\n"},
        {"frameworks": ("torch",), "project": "."}, "project . (setup.py line 2 computes its requirements: lock runs it)",
    ),
    "an export of one machine beside a declaration": (
        {"requirements.txt": "torch\n",
         "environment.yaml": "dependencies:\n- python=3.9\n- vc=14.3=h64f974e_17\n- six\n" + "- tqdm=4.66.1\n" * 19},
        {"frameworks": ("torch",), "requirements": ("requirements.txt",)},
        "not read environment.yaml (an export of one machine's environment)",
    ),
    "an environment.yml written by hand with many exact versions": (
        {"requirements.txt": "torch\n", "environment.yml": "dependencies:\n" + "- tqdm=4.66.1\n" * 21 + "- six\n" * 3},
        {"frameworks": ("torch",), "packages": ("tqdm==4.66.1", "six"), "requirements": ("requirements.txt",)}, "",
    ),
    "an export of one machine alone": (
        {"environment.yaml": "dependencies:\n- pytorch=2.6.0=cuda\n" + "- tqdm=4.66.1=py39_0\n" * 21},
        {"frameworks": ("torch==2.6.0",), "packages": ("tqdm==4.66.1",)}, "environment.yaml is an export of one machine's",
    ),
    "the environment that the README creates": (
        {"README.md": "conda env create -f env/mine.yml\n", "setup.py": _SETUP.format("install_requires=['torch', 'tqdm']"),
         "mine.py": "", "env/mine.yml": "dependencies:\n- python=3.9\n- pytorch=1.9\n- tqdm\n"},
        {"frameworks": ("torch==1.9.*",), "project": ".", "python": "3.9"}, "python 3.9 (env/mine.yml line 2)",
    ),
    "several environments in the README": (
        {"README.md": "conda env create -f cpu.yml\nconda env create -f gpu.yml\n", "requirements.txt": "torch\n",
         "cpu.yml": "dependencies:\n- python=3.7\n", "gpu.yml": "dependencies:\n- python=3.7\n"},
        {"frameworks": ("torch",), "requirements": ("requirements.txt",)},
        "not read cpu.yml (README.md line 1), gpu.yml (README.md line 2)",
    ),
    "the only environment of another name": (
        {"mine.yml": "dependencies:\n- python=3.9\n- pytorch=1.9\n", "chart.yaml": "dependencies:\n- name: x\n", "a.py": ""},
        {"frameworks": ("torch==1.9.*",), "python": "3.9"}, "python 3.9 (mine.yml line 2)",
    ),
    "environments of other names": (
        {"cpu.yml": "dependencies:\n  - python=3.7\n", "gpu.yml": "dependencies:\n- python=3.7\n", "a.py": "import torch\n"},
        {"frameworks": ("torch",)}, "cpu.yml, gpu.yml: not read. To take over an environment of conda, rename its file",
    ),
    "notebooks alone": (
        {"part/a.ipynb": _NOTEBOOK},
        {"frameworks": ("torch",), "packages": ("keras-hub", "matplotlib")}, "torch (imported in part/a.ipynb)",
    ),
    "notebooks beside programs": (
        {"a.ipynb": _NOTEBOOK, "a.py": "import torch, numpy\n"},
        {"frameworks": ("torch",), "packages": ("numpy",)}, "",
    ),
    "keras alone": ({"a.py": "import keras\n"}, {"frameworks": ("tensorflow",)}, "tensorflow (imported in a.py)"),
    "keras beside another framework": (
        {"a.py": "import keras, torch\n"}, {"frameworks": ("torch",), "packages": ("keras",)}, "",
    ),
    "another distribution of a module": (
        {"requirements.txt": "torch\nopencv-python-headless\n", "a.py": "import cv2\n"},
        {"frameworks": ("torch",), "requirements": ("requirements.txt",)}, "",
    ),
    "pixi.toml": (
        {"pixi.toml": "[dependencies]\npython = '3.11.*'\npytorch = '>=2.4'\n[pypi-dependencies]\ntimm = '>=1'\n"},
        {"frameworks": ("torch>=2.4",), "packages": ("timm>=1",), "python": "3.11"}, "python 3.11 (pixi.toml line 2)",
    ),
    "the features of pixi's default environment, on Linux": (
        {"pixi.toml": "[dependencies]\npython = '3.11.*'\n[target.linux-64.pypi-dependencies]\neinops = '*'\n"
                      "[target.osx-arm64.dependencies]\ntqdm = '*'\n[feature.gpu.dependencies]\npytorch-gpu = '>=2.4'\n"
                      "[feature.cpu.dependencies]\npytorch-cpu = '*'\n[environments]\ndefault = ['gpu']\ncpu = ['cpu']\n"},
        {"frameworks": ("torch>=2.4",), "packages": ("einops",), "python": "3.11"}, "torch>=2.4 (pixi.toml line 8)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_init_reads_what_is_declared_and_guesses_little(gpuenv, case):
    files, expected, words = CASES[case]
    write(gpuenv.work, files)
    ran = ok(gpuenv("init"))
    config = read_config(gpuenv.work / "gpuenv.yaml")
    keys = ("frameworks", "requirements", "packages", "extras", "project", "python", "cuda", "device")
    assert {key: value for key in keys if (value := getattr(config, key))} == expected
    assert words in re.sub(r" +", " ", ran.out)
    assert len(ran.out.splitlines()) <= 12


def test_examples_do_not_decide_what_a_project_requires(gpuenv):
    write(gpuenv.work, {"requirements.txt": "numpy\n", "examples/a.py": "import torch\n"})
    assert "torch is imported only in examples/a.py" in " ".join(refused(gpuenv("init"), 2).err.split())


def test_verbose_output_has_every_value(gpuenv):
    names = " ".join(f"requirements-{n:02}.txt" for n in range(30)).split()
    write(gpuenv.work, {"requirements.txt": "torch\n", **dict.fromkeys(names, "numpy\n")})
    ran = gpuenv("init", "-v")
    assert not [name for name in names if name not in ran.out]
    (gpuenv.work / "gpuenv.yaml").unlink()
    gpuenv.env["COLUMNS"] = "100"
    write(gpuenv.work, {"environment.yml": "dependencies:\n" + "".join(f"- unknown-{n}\n" for n in range(9))})
    short = gpuenv("init").out
    assert "more remarks in gpuenv.yaml" in short
    assert "requirements-29.txt" not in short and " more\n" in short and len(short.splitlines()) <= 12


def test_a_programs_own_neighbours_are_not_packages(tmp_path):
    """Wherever they are: programs change sys.path. A known name is the project's only where Python would find it."""
    write(
        tmp_path,
        {
            "src/mine/__init__.py": "",
            "src/mine/a.py": "import mine, helper, b, jax, sklearn\n",
            "src/mine/b.py": "import tools.x\n",
            "src/mine/jax/__init__.py": "",
            "tools/helper.py": "import mine\n",
            "tools/sklearn.py": "import sklearn\n",
            "tools/deep/run.py": "import helper\n",
        },
    )
    assert {m: i.files for m, i in imports.find_imports(tmp_path, known=("jax", "sklearn")).items()} == {
        "jax": ["src/mine/a.py"], "sklearn": ["src/mine/a.py"],
    }  # fmt: skip


def test_members_of_a_uv_workspace_are_their_folders(gpuenv):
    root = _PYPROJECT + 'dependencies = ["torch", "part"]\n[tool.uv.sources]\npart = {workspace = true}\n'
    member = '[project]\nname = "part"\nversion = "1"\ndependencies = ["jax"]\n[dependency-groups]\ndev = ["six"]\n'
    files = {
        "pyproject.toml": root + '[tool.uv.workspace]\nmembers = ["packages/*"]\n', "mine/__init__.py": "import six, jax\n",
        "packages/part/pyproject.toml": member, "packages/other/README.md": "",
    }  # fmt: skip
    config, text, notes = found(gpuenv, files)
    assert (config.frameworks, config.project) == (("torch",), ".")
    assert "workspace" not in text + " ".join(notes) and "ignored" not in text
    assert "six (group dev)" in text
    needs = read_project_requirements({}, {}, folder=gpuenv.work).lines
    part = next(need for need in needs if need.name == "part")
    assert (part.local, part.editable) == (str(gpuenv.work / "packages/part"), True)


def test_a_workspace_without_a_project_at_its_root_is_its_members(gpuenv):
    """As `uv sync` installs them: with the sources of the root, without excluded folders."""
    member = '[project]\nname = "%s"\nversion = "1"\nrequires-python = "%s"\ndependencies = %s\n'
    built = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
    torch = '[tool.uv.sources]\ntorch = {index = "cu"}\n[[tool.uv.index]]\nname = "cu"\nurl = "https://host/whl/cu126"\nexplicit = true\n'
    files = {
        "pyproject.toml": '[tool.uv.workspace]\nmembers = ["packages/*"]\nexclude = ["packages/kernels"]\n[tool.uv.sources]\ncore = {workspace = true}\n',
        "packages/core/pyproject.toml": member % ("core", ">=3.10", '["torch~=2.7"]') + '[project.optional-dependencies]\nfast = ["six"]\n' + built + torch,
        "packages/app/pyproject.toml": member % ("app", "<3.14", '["core", "tqdm"]') + built,
        "packages/app/app/__init__.py": "import torch\n",
        "packages/tools/pyproject.toml": member % ("tools", ">=3.9", '["rich"]'),
        "packages/kernels/pyproject.toml": member % ("kernels", ">=3.10", '["jax"]') + built,
    }  # fmt: skip
    config, text, _ = found(gpuenv, files)
    assert (config.frameworks, config.project, config.install, config.cuda) == (("torch",), ".", True, "12.6")
    assert '"torch"  # packages/core/pyproject.toml line 5' in text

    def read(**more):
        return read_project_requirements({}, {}, folder=gpuenv.work, **more)

    required = read()
    assert [(n.name, n.editable) for n in required.lines] == [
        ("core", True), ("tqdm", False), ("app", True), ("core", True), ("rich", False),
    ]  # fmt: skip
    assert required.requires_python == "<3.14,>=3.10,>=3.9"
    assert [b.specifier for b in required.bounds] == ["~=2.7"]
    assert "six" in [n.name for n in read(extras=["fast"]).lines]
    assert not any(n.name == "app" for n in read(install=False).lines)
    with pytest.raises(UsageError, match="no extra 'slow'"):
        read(extras=["slow"])


def test_a_folder_of_a_submodule_that_is_not_there_changes_nothing_else(gpuenv):
    """A clone without submodules has them as empty folders, or not at all."""
    files = {
        "pyproject.toml": _PYPROJECT + 'dependencies = ["torch", "part", "tqdm"]\n[tool.uv.sources]\npart = {path = "deps/part"}\n',
        ".gitmodules": "", "mine/__init__.py": "import numpy\n",
    }  # fmt: skip
    config, _, notes = found(gpuenv, files)
    assert (config.frameworks, config.project, config.packages) == (("torch",), ".", ())
    assert any("deps/part': no such path" in n and "git submodule update --init" in n for n in notes), notes
    (gpuenv.work / "deps/part").mkdir(parents=True)
    ran = gpuenv("lock", "--driver", "580.65.06", "--gpu", "H100")
    assert ran.code == 2 and "nothing to install in this folder" in ran.err
    assert "git submodule update --init" in ran.err


# --- versions written in another tool's form -----------------------------------------------------


@pytest.mark.parametrize(
    ("text", "hint"),
    [("torch@2.6", "torch==2.6.*"), ("torch=2.6", "torch==2.6.*"), ("torch @ v2.6.0", "torch==2.6.0")],
)
@pytest.mark.parametrize("command", ["resolve", "create", "lock", "init"])
def test_a_version_behind_an_at_sign_is_refused(gpuenv, command, text, hint):
    assert f"hint: --framework '{hint}'" in refused(gpuenv(command, "--framework", text), 2).err
    assert list(gpuenv.work.iterdir()) == []


def test_a_framework_that_init_does_not_know_is_refused_with_those_that_it_knows(gpuenv):
    ran = gpuenv("init", "--framework", "jaxx")
    assert ran.code == 2 and "'jaxx'. Did you mean jax?" in ran.err
    assert "hint: name torch, tensorflow, jax or onnxruntime" in ran.err and list(gpuenv.work.iterdir()) == []


def test_a_version_behind_an_at_sign_is_refused_in_a_file_and_beside_a_framework(gpuenv):
    ran = gpuenv("resolve", "--framework", "torch", "--with", "numpy@1.26")
    assert ran.code == 2 and "hint: --with 'numpy==1.26.*'" in ran.err
    write(gpuenv.work, {"requirements.txt": "torch\nnumpy@1.26.4\n"})
    ran = gpuenv("resolve", "-r", "requirements.txt")
    assert ran.code == 2 and "requirements.txt line 2" in ran.err and "write numpy==1.26.4" in ran.err


def test_a_frameworks_address_is_refused(gpuenv):
    ran = gpuenv("resolve", "--framework", "torch @ https://example.com/torch.whl")
    assert ran.code == 2 and "expected a name with bounds, not an address" in " ".join(ran.err.split())


def test_a_part_that_another_distribution_brings_is_a_package(gpuenv):
    config, text, notes = found(
        gpuenv,
        {
            "train.py": "import torch\nfrom torch.utils.tensorboard import SummaryWriter\n",
            "data.py": "from torch import utils\nfrom google.cloud import storage\nimport google.protobuf.text_format\n",
            "log.py": "try:\n    import torch.utils.tensorboard as tb\nexcept ImportError:\n    tb = None\n",
        },
    )
    assert config.packages == ("google-cloud-storage", "protobuf", "tensorboard")
    assert '"tensorboard"  # imported in train.py' in text
    assert "google" not in " ".join(notes)


# --- names that newer releases do not have ---------------------------------------------------------

_TF1 = """\
    # tf.Session is of TensorFlow 1
    import tensorflow as tf
    from tensorflow.contrib import slim
    with tf.Session() as session:
        pass
    """
_SESSION = "train.py line 4 uses Session of tensorflow, which tensorflow 2.0 does not have: the project needs tensorflow<2.0"
_FLOAT = "train.py line 2 uses float of numpy, which numpy 1.24 does not have: the project needs numpy<1.24"
_INF = "train.py line 4 uses Inf of numpy, which numpy 2.0 does not have: the project needs numpy<2.0"
_ROUND = _TF1.replace("import tensorflow as tf", "import tensorflow.compat.v1 as tf").replace(".contrib", "")


@pytest.mark.parametrize(
    ("needs", "program", "said"),
    [
        ("tensorflow", _TF1.replace(".contrib", ""), [_SESSION]),
        (
            "tensorflow",
            _TF1.replace("tf.Session", "open"),
            [_SESSION.replace("line 4 uses Session", "line 3 uses contrib")],
        ),
        ("tensorflow<2", _TF1, []),
        ("tensorflow==2.4.*", _TF1.replace(".contrib", ""), [_SESSION]),
        ("tensorflow", _ROUND, []),
        ("torch\nnumpy", "import numpy as np\nx = np.float(1) if np.float32 else np.floats\n", [_FLOAT]),
        ("tensorflow", _TF1.replace("from tensorflow.contrib import slim", "tf = tf.compat.v1"), []),
        (
            "torch\nnumpy",
            "import numpy as np\nnp.float = float\nx = np.float(1)\ny = f(np=np, x=np.Inf == 3)\n",
            [_INF],
        ),
        ("torch\nnumpy<1.24", "import numpy as np\nx = np.float(1)\n", []),
        ("torch", "import numpy\nnumpy.array(x.numpy.float)\nfrom jax import tree_map\n", []),
    ],
)
def test_a_name_that_newer_releases_lack_is_named_with_its_line(gpuenv, needs, program, said):
    *_, notes = found(gpuenv, {"requirements.txt": f"{needs}\n", "train.py": program})
    assert [note for note in notes if "does not have" in note] == said
