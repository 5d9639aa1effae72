"""The packages that the reasons of a refusal name."""

from rows import rows

from provision.wheels.refused_questions import find_names


@rows(
    ("log", "names"),
    [
        (
            "Because there is no version of mlflow-skinny==3.18.0 and mlflow>=3.18.0 cannot be used, we can conclude",
            {"mlflow-skinny", "mlflow"},
        ),
        ("Because all versions of Ruamel.YAML depend on bare, and bare was not found in the package registry",
         {"ruamel-yaml", "bare", "package", "registry"}),
        ("(1) Because a[extra]>=1,<2 depends on b and Python>=3.12, we can conclude", {"a", "b"}),
        ("Because only the following versions of available==1 are available:\n   available<2\n", {"available"}),
        ("Because gpuenv-plan depends on x==1, your requirements are unsatisfiable.\nhint: try `y==2`", {"x"}),
        ("", set()),
    ],
)  # fmt: skip
def test_names_in_a_refusal(log, names):
    assert set(find_names(log)) == names
