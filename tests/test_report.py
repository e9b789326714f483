"""`magpy.explain(f, ...).save(path)`: a page of the source, graphs, guards, history and code."""

import queue
import re
import warnings
from html.parser import HTMLParser

import pytest
import torch

import magpy
from magpy.runtime import page, report

X = torch.ones(2, 4)
VOID = {"meta", "input", "br"}


class Element:
    """A part of a page: its tag, attributes, parts; text has the tag "" and itself as a part."""

    def __init__(self, tag, attrs, parent):
        self.tag, self.attrs, self.parent, self.parts = tag, dict(attrs), parent, []

    @property
    def text(self):
        return "".join(p if isinstance(p, str) else p.text for p in self.parts)

    @property
    def classes(self):
        return (self.attrs.get("class") or "").split()

    def all(self, tag=None, kind=None):
        for p in self.parts:
            if not isinstance(p, str):
                if (tag in (None, p.tag)) and (kind is None or kind in p.classes):
                    yield p
                yield from p.all(tag, kind)

    def id(self, name):
        (found,) = [e for e in self.all() if e.attrs.get("id") == name]
        return found


class Page(HTMLParser):
    """Builds the tree of a page, whose tags must be closed in their order."""

    def __init__(self, text):
        super().__init__()
        self.top = self.now = Element("", (), None)
        self.feed(text)
        self.close()
        assert self.now is self.top

    def handle_starttag(self, tag, attrs):
        new = Element(tag, attrs, self.now)
        self.now.parts.append(new)
        if tag not in VOID:
            self.now = new

    def handle_endtag(self, tag):
        assert tag == self.now.tag
        self.now = self.now.parent

    def handle_data(self, data):
        self.now.parts.append(data)


@magpy.disable
def opaque(x):
    return (x + 1) * 2


@pytest.fixture
def saved(tmp_path):
    def save(f, *args):
        path = tmp_path / "report.html"
        magpy.explain(f, *args).save(path)
        return Page(path.read_text(encoding="utf-8")).top

    return save


def line(top, text):
    """The one line of source that holds a text."""
    (found,) = [e for e in top.all("div", "line") if text in e.text]
    return found


def kind(top, text):
    return [c for c in line(top, text).classes if c not in ("row", "line")]


class Layer(torch.nn.Module):
    """A layer."""

    def __init__(self):
        super().__init__()
        self.linear, self.scale = torch.nn.Linear(4, 4), 2.0

    def forward(self, x):
        # the text of "a < b" & <b>markup</b>
        name = "<script>alert('&')</script>"
        y = self.linear(x)
        return y.relu() * self.scale if name else y


def test_each_line_says_how_it_runs(saved):
    top = saved(Layer(), X)
    assert kind(top, "self.linear(x)") == ["graph"]
    assert kind(top, "y.relu() * self.scale") == ["graph"]
    assert kind(top, "name =") == ["mock"]
    assert kind(top, "def forward") == []
    assert kind(top, "# the text") == []


def test_text_of_the_program_is_text_in_the_page(saved):
    top = saved(Layer(), X)
    assert line(top, "# the text").text.endswith('# the text of "a < b" & <b>markup</b>')
    assert "<script>alert('&')</script>" in line(top, "name =").text
    assert len(list(top.all("script"))) == 1
    assert not list(top.all("b", "markup"))


def test_the_page_needs_nothing_beside_it(tmp_path):
    path = tmp_path / "report.html"
    magpy.explain(Layer(), X).save(path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert not re.search(r"https?:|src=|@import|<link", text)
    top = Page(text).top
    ids = [e.attrs["id"] for e in top.all() if "id" in e.attrs]
    assert len(ids) == len(set(ids))
    links = [e.attrs["href"] for e in top.all("a")]
    assert links
    assert {link.removeprefix("#") for link in links} <= set(ids)


def test_operations_lead_to_what_they_take_and_to_their_lines(saved):
    top = saved(Layer(), X)
    nodes = {e.attrs["id"].rpartition("-")[2]: e for e in top.all("div", "node")}
    assert list(nodes) == ["linear", "relu", "mul"]
    assert nodes["mul"].text.startswith("mul = mul(relu, 2.0)")
    takes, where = nodes["mul"].all("a")
    assert top.id(takes.attrs["href"][1:]) is nodes["relu"]
    assert top.id(where.attrs["href"][1:]) is line(top, "y.relu() * self.scale")
    (graph,) = line(top, "self.linear(x)").all("a")
    assert top.id(graph.attrs["href"][1:]).tag == "details"


def test_a_node_with_the_name_of_an_entity(saved):
    top = saved(lambda x: torch.lt(x, 2) * torch.gt(x, 1), X)
    assert [e.text.partition(" = ")[2].partition(")")[0] for e in top.all("div", "node")] == [
        "lt(v0, 2",
        "gt(v0, 1",
        "mul(lt, gt",
    ]


def test_a_call_that_is_refused(saved):
    def f(x):
        h = x * 2
        return opaque(h)

    top = saved(f, X)
    assert kind(top, "return opaque(h)") == ["left"]
    assert kind(top, "h = x * 2") == ["left"]
    assert "opaque is called" in line(top, "return opaque(h)").text
    assert "opaque is called" in top.id("left").text


def test_guards_are_a_tree_by_the_users_paths(saved):
    top = saved(Layer(), X)
    (tree,) = [d for d in top.all("details") if d.parts[0].text == "guards"]
    below = {d.parts[0].text: d for d in tree.all("details")}
    assert any(r.text.startswith(".weight class, dtype") for r in below[".linear"].all("div"))
    assert below[".linear"] in list(below["self"].all("details"))
    assert any(r.text == ".scale is 2.0" for r in below["self"].all("div", "guard"))


def test_a_compiled_callable_tells_its_own_history_and_failures(saved):
    layer = Layer()
    compiled = magpy.compile(layer, backend="eager", dynamic=False)
    compiled(X)
    layer.scale = 3.0
    for _ in range(3):
        compiled(X)
    top = saved(compiled, X)
    assert magpy.stats(compiled).captures == 2  # the page is of these
    events = [e.text for e in top.all("div", "event")]
    assert [re.sub(r"in .* s", "", e) for e in events] == [
        "call 1captured 3 operations ",
        "call 2no entry holds: self.scale was 2.0, is 3.0",
        "call 2captured 3 operations ",
    ]
    assert any(e.text == "failed 1 time" for e in top.all("span", "failed"))
    scale = [e.text for e in top.all("div", "guard") if "self.scale" in e.text]
    assert scale == [
        "self.scale is 3.0 (entry 0)",
        "self.scale is 2.0 (entry 1)",
        "self.scale failed 1 time",
    ]
    assert "operations in graphs: 100.0%" in top.id("figures").text
    assert "served 2 calls" in top.id("r0e0").parts[0].text


def test_regions_and_what_is_left_to_python(saved, monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)
    seen = queue.Queue()

    def f(x):
        h = x * 2
        n = len(h) + 1
        seen.put(n)
        h = h + n
        h = opaque(h)
        return h.relu()

    compiled = magpy.compile(f, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", magpy.MagpyWarning)
        for _ in range(8):
            compiled(X)
    top = saved(compiled, X)
    assert kind(top, "h = x * 2") == ["graph"]
    assert kind(top, "n = len(h)") == ["mock"]
    assert kind(top, "seen.put(n)") == ["mock"]
    assert kind(top, "h = h + n") == ["graph"]
    assert kind(top, "h = opaque(h)") == ["left"]
    assert "region 1, graph 0" in line(top, "h = x * 2").text
    assert "region 2, graph 0" in line(top, "return h.relu()").text
    assert "opaque is called" in line(top, "h = opaque(h)").text
    headings = [e.text for e in top.all("h2")]
    assert len([h for h in headings if h.startswith("Region")]) == 2


def test_operations_between_graphs_are_marked(saved):
    def f(x):
        if x.sum() > 0:
            return x * 2
        return x

    top = saved(f, X)
    assert kind(top, "if x.sum() > 0") == ["python"]
    assert "sum by Python" in line(top, "if x.sum() > 0").text
    assert kind(top, "return x * 2") == ["graph"]


def test_generated_code_is_in_the_page(saved):
    top = saved(Layer(), X)
    (code,) = [d for d in top.all("details") if d.parts[0].text == "generated code"]
    assert "def mock(" in code.text


def test_a_callable_without_source(saved):
    names = {}
    exec("def f(x):\n    return x.relu() + 1\n", names)
    top = saved(names["f"], X)
    assert [e.text.split(" = ")[0] for e in top.all("div", "node")] == ["relu", "add"]


def test_a_path_that_holds_anything_is_escaped():
    made = report.Region(None, 0, failed={"x['<i>\"']": 2})
    text = page.html(report.Report("<f>", None, {"a&b": "<1>"}, [made]))
    top = Page(text).top
    assert not list(top.all("i"))
    assert next(top.all("title")).text == "magpy: <f>"
    assert "['<i>\"'] failed 2 times" in [e.text for e in top.all("div", "guard")]


def test_the_place_of_a_line():
    assert report.place("/a b/c:d.py:31 (f)") == ("/a b/c:d.py", 31, "f")
    assert report.place("") is None


def test_a_picture_shows_modules_without_their_inner_dicts(tmp_path):
    path = tmp_path / "graph.dot"
    magpy.explain(torch.nn.Sequential(Layer()), X).draw(path)
    text = path.read_text()
    assert 'label="Layer"' in text
    assert 'label="weight"' in text
    assert "OrderedDict" not in text
    assert "_parameters" not in text
    assert "_forward_hooks" not in text
