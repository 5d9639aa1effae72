"""`gpuenv init`: packages, bounds, CUDA and Python that it takes over from a folder's files and imports."""

import json
import re
import textwrap

import pytest
from rows import rows

from provision.config.file import read_config
from provision.requirements import files, imports


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def found(gpuenv, files):
    """What `gpuenv init` writes for a folder with these files: gpuenv.yaml as values, as text, and the notes."""
    write(gpuenv.work, files)
    ran = gpuenv("init", "--json")
    assert ran.code == 0, ran.out + ran.err
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
    assert "environment.yml: the channels pytorch, nvidia apply only with manager: conda" in notes


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
                  - ffmpeg
                  - libunknown-thing=3
                  - pip:
                    - einops==0.3.0
                    - -e git+https://example.com/taming.git@master#egg=taming-transformers
                    - -r more.txt
                    - --extra-index-url https://example.com/simple
                    - no such requirement
                    - -e .
                variables: {A: b}
                """,
            "more.txt": "tqdm\n",
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
    for entry in ("pip=20.3", "pandas=1.3|1.4", "ffmpeg", "libunknown-thing=3", "https://example.com/simple",
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
    assert (
        "torch==1.11.* (environment.yml line 1) is not listed, because another file sets the bounds of torch"
        in notes
    )


def test_bounds_on_python_are_kept_by_resolve(gpuenv):
    found(gpuenv, {"environment.yml": "dependencies: ['python<3.11', jax]\n"})
    ran = gpuenv("resolve", "--json", "--device", "cpu")
    assert ran.code == 0, ran.err
    assert ran.json["python"] in ("3.9", "3.10")
    config = gpuenv.work / "gpuenv.yaml"
    config.write_text(config.read_text().replace('"<3.11"', '"<3.9,>=3.4"'))
    ran = gpuenv("resolve", "--json", "--device", "cpu")
    assert ran.code == 5
    assert "python in gpuenv.yaml requires <3.9,>=3.4" in json.dumps(ran.json)
    assert gpuenv("resolve", "--json", "--device", "cpu", "--python", "3.12").code == 0


@pytest.mark.parametrize("python", [">=3.8", "3.11", "3.11.4", ">=3.9,<3.13", "==3.10.*", "~=3.10", "!=3.11"])
def test_gpuenv_yaml_accepts_these_forms_of_python(tmp_path, python):
    (tmp_path / "gpuenv.yaml").write_text(f'frameworks: [jax]\npython: "{python}"\n')
    assert read_config(tmp_path / "gpuenv.yaml").python == python


# --- imports -------------------------------------------------------------------------------------


def test_imports_become_packages_where_nothing_lists_any(gpuenv):
    config, text, notes = found(
        gpuenv,
        {
            "train.py": "import torch, numpy as np, os\nif True:\n    import wandb\n",
            "model.py": "import cv2\nfrom PIL import Image\n\ndef load():\n    from transformers import GPT2\n",
            "data/prepare.py": "import requests, torchvision\nfrom model import x\nimport data\nimport strange_thing\n",
            "tests/test_a.py": "import pytest, sklearn\n",
            "extra.py": "try:\n    import yaml\nexcept ImportError:\n    yaml = None\n",
            "types_only.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pandas\n",
        },
    )
    assert config.frameworks == ("torch",)
    assert set(config.packages) == {
        "numpy", "wandb", "opencv-python", "pillow", "transformers", "requests", "torchvision",
    }  # fmt: skip
    assert '"opencv-python"  # imported in model.py' in text
    assert "PyYAML  # optional import (inside try/except) in extra.py" in text
    assert "strange_thing, imported in data/prepare.py: gpuenv does not know its package name" in notes
    assert "strange_thing" not in " ".join(config.packages)
    assert "pytest" not in text and "scikit-learn" not in text


def test_imports_are_proposed_as_checks(gpuenv):
    """As comments: read as they are nothing is asked for, without the marks each is a check."""
    config, text, _ = found(
        gpuenv,
        {
            "requirements.txt": "torch\nopencv-python-headless\n",
            "train.py": "import torch, torchvision, os, own\nimport cv2.dnn\n\ndef f():\n    import onnx\n",
            "own.py": "import null, cv2\ntry:\n    import yaml\nexcept ImportError:\n    yaml = None\n",
            "tests/test_a.py": "import pytest\n",
        },
    )
    assert config.checks == ()
    assert "#   - import: cv2  # imported in own.py and 1 more\n" in text
    (gpuenv.work / "gpuenv.yaml").write_text(re.sub(r"(?m)^# ?(?=checks:|  - import:)", "", text))
    checks = read_config(gpuenv.work / "gpuenv.yaml").checks
    assert [(c.kind, c.subject) for c in checks] == [
        ("import", "cv2"), ("import", "null"), ("import", "torchvision"),
    ]  # fmt: skip


def test_a_command_is_proposed_as_a_check_where_nothing_is_imported(gpuenv):
    _, text, _ = found(gpuenv, {"requirements.txt": "jax\n"})
    (gpuenv.work / "gpuenv.yaml").write_text(re.sub(r"(?m)^# ?(?=checks:|  - run:)", "", text))
    (check,) = read_config(gpuenv.work / "gpuenv.yaml").checks
    assert (check.kind, check.subject) == ("run", "python train.py --help")


def test_beside_a_requirements_file_only_what_a_program_needs_to_start_is_added(gpuenv):
    config, text, _ = found(
        gpuenv,
        {
            "requirements.txt": "torch\nopencv-python-headless\ntqdm\nPillow\n",
            "clip/__init__.py": "from .clip import *\n",
            "clip/clip.py": "import torch, numpy, tqdm\nfrom PIL import Image\nimport clip\n",
            "export.py": "def run():\n    import onnx\n",
            "show.ipynb": json.dumps(
                {"cells": [{"cell_type": "code", "source": "import matplotlib.pyplot as plt\nimport torch"}]}
            ),
        },
    )
    assert config.packages == ("numpy",)
    assert "#   onnx  # imported in a function or notebook: export.py" in text
    assert "#   matplotlib  # imported in a function or notebook: show.ipynb" in text


def test_beside_a_requirements_file_what_most_programs_do_without_is_suggested(gpuenv):
    optional = "try:\n    import comet_ml\nexcept ImportError:\n    comet_ml = None\n"
    config, text, _ = found(
        gpuenv,
        {
            "requirements.txt": "torch\n",
            "train.py": f"import torch\n{optional}",
            "utils/__init__.py": "",
            "utils/loggers/__init__.py": optional,
            "utils/loggers/search.py": "import comet_ml, wandb\n",
            "utils/rest/server.py": "from flask import Flask\n",
        },
    )
    assert config.packages == ("wandb",)
    assert "#   comet-ml  # optional import (inside try/except) in train.py and 1 more" in text
    assert "#   flask  # imported in utils/rest/server.py" in text


def test_another_distribution_of_a_module_that_is_listed_is_enough(gpuenv):
    """opencv-python-headless brings cv2 as opencv-python does."""
    config, _, _ = found(
        gpuenv, {"requirements.txt": "torch\nopencv-python-headless\n", "a.py": "import cv2\n"}
    )
    assert config.packages == ()


def test_keras_alone_means_tensorflow(gpuenv):
    config, text, _ = found(gpuenv, {"a.py": "import keras\n"})
    assert config.frameworks == ("tensorflow",) and config.packages == ()
    assert "# imported in a.py" in text


def test_keras_beside_another_framework_is_a_package(gpuenv):
    config, _, _ = found(gpuenv, {"a.py": "import keras, torch\n"})
    assert config.frameworks == ("torch",) and config.packages == ("keras",)


def test_a_programs_own_neighbours_are_not_packages(tmp_path):
    write(
        tmp_path,
        {
            "src/mine/__init__.py": "",
            "src/mine/a.py": "import mine, helper, b\n",
            "src/mine/b.py": "import tests.x\n",
            "tools/helper.py": "import mine\n",
            "tools/deep/run.py": "import helper\n",
        },
    )
    assert sorted(imports.find_imports(tmp_path)) == ["b", "helper", "tests"][1:]


# --- versions written in another tool's form -----------------------------------------------------


@pytest.mark.parametrize(
    ("text", "hint"),
    [("torch@2.6", "torch==2.6.*"), ("torch=2.6", "torch==2.6.*"), ("torch @ v2.6.0", "torch==2.6.0")],
)
@pytest.mark.parametrize("command", ["resolve", "create", "lock", "init"])
def test_a_version_behind_an_at_sign_is_refused(gpuenv, command, text, hint):
    ran = gpuenv(command, "--framework", text)
    assert ran.code == 2
    assert f"hint: --framework '{hint}'" in ran.err
    assert list(gpuenv.work.iterdir()) == []


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
    assert not [note for note in notes if "no known distribution" in note]


def test_a_part_that_may_be_missing_is_suggested(gpuenv):
    guarded = "import torch\ntry:\n    from torch.utils import tensorboard\nexcept ImportError:\n    pass\n"
    config, text, _ = found(gpuenv, {"train.py": guarded, "requirements.txt": "torch\n"})
    assert config.packages == ()
    assert "#   tensorboard  # optional import (inside try/except) in train.py" in text


def test_a_package_that_one_program_can_do_without_is_suggested_beside_requirements(gpuenv):
    files = {
        "log.py": "try:\n    import comet_ml\nexcept ImportError:\n    comet_ml = None\n",
        "sweep.py": "import torch, comet_ml, flask\n",
    }
    config, text, _ = found(gpuenv, {**files, "requirements.txt": "torch\n"})
    assert config.packages == ("flask",)
    assert "#   comet-ml  # optional import (inside try/except) in log.py" in text


def test_an_optional_import_is_a_package_where_no_requirements_exist(gpuenv):
    files = {"log.py": "try:\n    import comet_ml\nexcept ImportError:\n    comet_ml = None\n"}
    config, _, _ = found(gpuenv, {**files, "sweep.py": "import torch, comet_ml\n"})
    assert config.packages == ("comet-ml",)


# --- main programs and side folders --------------------------------------------------------------

_CLASSIFIER = {
    "main.py": "import torch, timm\nfrom models.net import Net\n",
    "models/net.py": "import torch, einops\n",
    "detection/train.py": "import torch, mmcv, flask\n",
    "detection/data/load.py": "def load():\n    import lmdb\n",
}


def test_what_a_side_folder_with_its_own_readme_imports_is_suggested(gpuenv):
    config, text, _ = found(gpuenv, {**_CLASSIFIER, "detection/README.md": "pip install mmcv-full\n"})
    assert config.packages == ("einops", "timm")
    assert "#   mmcv  # imported outside the main programs: detection/train.py\n" in text
    assert "#   lmdb  # imported outside the main programs: detection/data/load.py\n" in text
    assert "import: mmcv" not in text and "#   - import: einops  # imported in models/net.py\n" in text


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"detection/README.md": "", "README.md": "Then `python detection/train.py --gpus 8` trains it.\n"},
        {"detection/README.md": "", "INSTALL.md": "    torchrun -m detection.train\n"},
        {"detection/README.md": "", "detection/__init__.py": ""},
        {"detection/README.md": "", "tool.py": "from detection import train\n"},
        {"detection/README.md": "", "models/net.py": "import torch, einops\nfrom data.load import load\n"},
    ],
)
def test_imports_of_a_side_folder_are_packages_where_it_is_not_separate(gpuenv, more):
    """Without documents of its own, run by the project's document, or imported (also with the folder in the path)."""
    config, _, _ = found(gpuenv, {**_CLASSIFIER, **more})
    assert config.packages == ("einops", "flask", "lmdb", "mmcv", "timm")


def test_no_folder_is_apart_where_the_programs_at_the_top_use_no_framework(gpuenv):
    files = {
        "download.py": "import requests\n",
        "first/README.md": "",
        "first/run.py": "import torch, timm\n",
    }
    config, _, _ = found(gpuenv, files)
    assert config.packages == ("requests", "timm")


def test_beside_a_requirements_file_side_programs_add_no_packages(gpuenv):
    """A project with requirements left these out: its documents name other programs, and no program imports these."""
    files = {
        "requirements.txt": "torch\n", "README.md": "[train](train.py) it, see https://example.com/side/port.py\n",
        "train.py": "import torch, timm\nfrom log import note\n", "log.py": "import wandb\n",
        "export.py": "import torch, onnx\n", "convert/port.py": "import torch, clu\n",
    }  # fmt: skip
    config, text, _ = found(gpuenv, files)
    assert config.packages == ("timm", "wandb")
    assert (
        "#   onnx  # imported in export.py\n" in text and "#   clu  # imported in convert/port.py\n" in text
    )


def test_a_package_of_another_requirements_file_is_suggested(gpuenv):
    files = {
        "requirements.txt": "torch\n", "requirements-extras.txt": "mmcv-full==1.5.0\n",
        "requirements-dev.txt": "pytest\n", "net/__init__.py": "import torch\n", "net/eval.py": "import mmcv, timm\n",
        "tests/test_net.py": "import pytest\n",
    }  # fmt: skip
    config, text, _ = found(gpuenv, files)
    assert config.packages == ("timm",)
    said = "imported in net/eval.py; requirements-extras.txt lists it"
    assert f"#   mmcv  # {said}\n" in text and "pytest  #" not in text
