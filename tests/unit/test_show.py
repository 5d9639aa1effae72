"""Values in words."""

from provision import show


def test_whatever_has_words_is_a_noun_and_its_words_are_there():
    from importlib import import_module

    from provision import model

    for noun, where in show._SHOWN_BY.items():
        assert hasattr(getattr(model, noun), "SCHEMA"), noun
        module, function = where.split(":")
        assert callable(getattr(import_module(module, "provision.show"), function))
