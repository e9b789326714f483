"""Whether files are there (`os.path.exists`), at one path or another one in every call."""

import os

import pytest
import torch

import magpy

ASKS = ["exists", "lexists", "isfile", "isdir", "islink"]


@pytest.mark.parametrize("ask", ASKS)
def test_one_file(ask, tmp_path):
    place, there = str(tmp_path / "file"), getattr(os.path, ask)

    def f(x):
        return x + 1 if there(place) else x - 1

    compiled = magpy.compile(f, backend="eager")
    x = torch.ones(2)
    (tmp_path / "target").write_text("")
    makes = [
        lambda: None,
        lambda: (tmp_path / "file").write_text(""),
        lambda: (tmp_path / "file").write_text("more"),  # another size and time
        lambda: os.remove(place),
        lambda: os.mkdir(place),
        lambda: os.rmdir(place),
        lambda: os.symlink(tmp_path / "target", place),
        lambda: os.remove(tmp_path / "target"),
    ]
    for make in makes:
        make()
        assert torch.equal(compiled(x), f(x))
        assert torch.equal(compiled(x), f(x))
    assert magpy.stats(compiled).captures <= 2


@pytest.mark.parametrize("ask", ASKS)
def test_a_file_for_each_request(ask, tmp_path):
    there = getattr(os.path, ask)

    def f(x, user):
        path = os.path.join(tmp_path.as_posix(), "users", user)
        return (x + 1, path) if there(path) else (x - 1, path)

    compiled = magpy.compile(f, backend="eager")
    os.mkdir(tmp_path / "users")
    x = torch.ones(2)
    for i in range(10):
        user = f"user{i}"
        if i % 3 == 1:
            (tmp_path / "users" / user).write_text("")
        if i % 3 == 2:
            (tmp_path / "users" / user).mkdir()
        got, wanted = compiled(x, user), f(x, user)
        assert torch.equal(got[0], wanted[0])
        assert got[1] == wanted[1]
    stats = magpy.stats(compiled)
    assert stats.captures <= 3
    assert stats.eager_calls == 0


@pytest.mark.parametrize(
    "parts", [("a", "b"), ("/a", "b", ""), ("a", "/b"), ("", "b"), ("a/", "b")]
)
def test_paths_of_other_parts_are_joined_as_in_eager(parts):
    def f(x, *given):
        return x * 2, os.path.join(*given)

    compiled = magpy.compile(f, backend="eager")
    x = torch.ones(2)
    for i in range(4):
        given = [p + str(i) if p[-1:] not in ("/", "") else p for p in parts]
        assert compiled(x, *given)[1] == f(x, *given)[1]
    assert compiled(x, *parts)[1] == f(x, *parts)[1]


def test_a_path_of_a_class_with_its_own_code():
    class Path:
        calls = 0

        def __fspath__(self):
            Path.calls += 1
            return "a"

    def f(x, part):
        return x * 2, os.path.join(Path(), part), Path.calls

    compiled = magpy.compile(f, backend="eager")
    x = torch.ones(2)
    for i in range(4):
        Path.calls = 0
        wanted = f(x, f"b{i}")
        Path.calls = 0
        assert compiled(x, f"b{i}")[1:] == wanted[1:]


def test_a_path_that_is_no_text_raises_as_in_eager():
    def f(x, a):
        return x * 2, os.path.join("a", a)

    compiled = magpy.compile(f, backend="eager")
    x = torch.ones(2)
    for given in ("b", "c", b"d", 3, "e"):
        try:
            wanted = f(x, given)[1]
        except TypeError as e:
            with pytest.raises(TypeError, match="path|str, bytes"):
                compiled(x, given)
            assert "not" in str(e) or "mix" in str(e)
        else:
            assert compiled(x, given)[1] == wanted
