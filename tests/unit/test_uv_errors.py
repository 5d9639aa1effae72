"""Which releases a refusal of uv names as without usable wheels."""

from rows import rows

from provision.lock.uv_errors import find_unusable


@rows(
    ("log", "found"),
    [
        ("Because fire>=4.9,<=4.9.3 has no usable wheels and you require fire", {"fire": (">=4.9,<=4.9.3",)}),
        (
            "<21 and all of:\n    mlflow==2.22.3\n    mlflow==3.1.2\nhave no usable wheels, we can",
            {"mlflow": ("==2.22.3", "==3.1.2")},
        ),
        ("Because all versions of sgmllib3k have no usable wheels and", {"sgmllib3k": ("",)}),
        ("Because Many.Names==1 has no usable wheels and other==2 has no usable wheels.",
         {"many-names": ("==1",), "other": ("==2",)}),
        ("Because a==1 has no usable wheels and a==3 has no usable wheels", {"a": ("==3", "==1")}),
        ("Because a==1 has no wheels with a matching Python tag", {}),
        ("has no usable wheels", {}),
        ("", {}),
    ],
)  # fmt: skip
def test_releases_without_usable_wheels(log, found):
    assert find_unusable(log) == found
