"""What messages have in common."""

import pytest

from magpy.errors import an


@pytest.mark.parametrize(
    "text",
    [
        *("a list", "a Map", "a union", "a UserDict", "a OneHot", "a European"),
        *("an int", "an ndarray", "an OrderedDict", "an UntypedStorage", "an immutables._map.Map"),
    ],
)
def test_a_name_has_the_article_that_is_spoken(text):
    assert an(text.partition(" ")[2]) == text
