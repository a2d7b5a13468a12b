"""The job graph as a picture: nothing is missing, nothing lies over anything else, nothing in a name can do harm."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abscli.draw.layers import arrange, crossings, layers
from abscli.draw.placement import Extent, place
from abscli.draw.topology_layout import (
    LABEL_HEIGHT,
    Box,
    Layout,
    Link,
    Piece,
    Point,
    lay_out,
    lay_out_rightwards,
    spread,
)
from abscli.draw.topology_svg import topology_svg
from abscli.graph.backedges import back_edges
from abscli.graph.job_graph import JobGraph
from formats.job.file import parse_topology, parse_topology_bytes
from formats.job.model import Edge, Kind, Operator, Partition, Topology
from tests.tiers import examples

DATA = Path(__file__).parents[1] / "data" / "topologies"
SVG = "{http://www.w3.org/2000/svg}"

numbered_edges = st.integers(1, 12).flatmap(
    lambda count: st.tuples(
        st.just(count),
        st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), unique=True, max_size=3 * count),
    )
)


def graph_of(count: int, edges: list[tuple[int, int]]) -> JobGraph:
    operators = tuple(Operator(f"o{number}", Kind.OPAQUE, 1, 1) for number in range(count))
    between = [Edge(f"o{a}", f"o{b}", Partition.FORWARD) for a, b in sorted(edges, key=lambda edge: edge[::-1])]
    return JobGraph.of(Topology("random", operators, tuple(between)))


def links_of(graph: JobGraph, labels: list[float]) -> list[Link]:
    at = {op.id: number for number, op in enumerate(graph.topology.operators)}
    return [
        Link(at[edge.source], at[edge.target], label, graph.is_back(edge))
        for edge, label in zip(graph.topology.edges, itertools.cycle(labels), strict=False)
    ]


def points_on(piece: Piece) -> list[Point]:
    """Some points of a line or a curve."""
    found = []
    for step in range(13):
        t = step / 12
        points = list(piece)
        while len(points) > 1:
            points = [Point(a.x + (b.x - a.x) * t, a.y + (b.y - a.y) * t) for a, b in itertools.pairwise(points)]
        found += points
    return found


def overlap(one: Box, other: Box, apart: float = 0.0) -> bool:
    beside = one.right + apart <= other.left or other.right + apart <= one.left
    return not beside and one.bottom > other.top and other.bottom > one.top


def on_border(point: Point, box: Box) -> bool:
    within = box.left - 0.01 <= point.x <= box.right + 0.01 and box.top - 0.01 <= point.y <= box.bottom + 0.01
    sides = (point.x - box.left, point.x - box.right, point.y - box.top, point.y - box.bottom)
    return within and min(map(abs, sides)) < 0.01


def check(layout: Layout, links: list[Link]) -> None:
    for one, other in itertools.combinations(layout.boxes, 2):
        assert not overlap(one, other, 20)
    labels = [
        Box(route.label.x - link.label / 2, route.label.y - LABEL_HEIGHT / 2, link.label, LABEL_HEIGHT)
        for route, link in zip(layout.routes, links, strict=True)
    ]
    for label, box in itertools.product(labels, layout.boxes):
        assert not overlap(label, box)
    for one, other in itertools.combinations(labels, 2):
        assert not overlap(one, other)
    for box in (*layout.boxes, *labels):
        assert box.left > -0.01
        assert box.top > -0.01
        assert box.right < layout.width + 0.01
        assert box.bottom < layout.height + 0.01
    for route, link in zip(layout.routes, links, strict=True):
        assert on_border(route.pieces[0][0], layout.boxes[link.source])
        assert on_border(route.pieces[-1][-1], layout.boxes[link.target])
        for before, after in itertools.pairwise(route.pieces):
            assert before[-1] == after[0]
        for point in (point for piece in route.pieces for point in points_on(piece)):
            assert -0.01 <= point.x <= layout.width + 0.01
            assert -0.01 <= point.y <= layout.height + 0.01
            for box in layout.boxes:
                inside = box.left + 0.01 < point.x < box.right - 0.01 and box.top + 0.01 < point.y < box.bottom - 0.01
                assert not inside


@settings(max_examples=examples(300))
@given(
    numbered_edges,
    st.lists(st.tuples(st.integers(40, 300), st.integers(30, 80)), min_size=12, max_size=12),
    st.lists(st.integers(10, 200), min_size=1, max_size=5),
)
def test_no_box_or_label_lies_over_another_and_no_edge_goes_through_a_box(
    numbered: tuple[int, list[tuple[int, int]]], sizes: list[tuple[int, int]], labels: list[int]
) -> None:
    graph = graph_of(*numbered)
    links = links_of(graph, [float(label) for label in labels])
    check(lay_out(sizes[: numbered[0]], links), links)


@given(numbered_edges)
def test_data_flows_downwards_and_back_edges_upwards(numbered: tuple[int, list[tuple[int, int]]]) -> None:
    links = links_of(graph_of(*numbered), [50.0])
    layout = lay_out([(100, 44)] * numbered[0], links)
    for link in links:
        source, target = layout.boxes[link.source], layout.boxes[link.target]
        if link.source == link.target:
            assert link.back
        elif link.back:
            assert target.bottom < source.top
        else:
            assert source.bottom < target.top


@given(numbered_edges)
def test_an_edge_has_a_place_in_every_row_that_it_passes(numbered: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = numbered
    topology = graph_of(count, edges).topology
    back = {(int(a[1:]), int(b[1:])) for a, b in back_edges(topology)}
    forward = [edge for edge in edges if edge not in back]
    rows = arrange(count, forward)
    assert sorted(node for nodes in rows.rows for node in nodes) == list(range(len(rows.row)))
    for number, nodes in enumerate(rows.rows):
        assert all(rows.row[node] == number for node in nodes)
    for (source, target), chain in zip(forward, rows.chains, strict=True):
        assert (chain[0], chain[-1]) == (source, target)
        assert [rows.row[node] for node in chain] == list(range(rows.row[source], rows.row[target] + 1))


def test_edges_that_can_be_untangled_are() -> None:
    edges = [(0, 7), (1, 6), (2, 5), (3, 4), (0, 6), (3, 5)]
    rows = arrange(8, edges)
    assert crossings(rows.rows, rows.neighbours()[1], rows.places()) == 0


def test_a_source_stands_next_to_what_it_feeds() -> None:
    assert layers(5, [(0, 1), (1, 2), (2, 3), (4, 3)]) == [0, 1, 2, 3, 2]


def test_layers_of_a_cycle_are_refused() -> None:
    with pytest.raises(ValueError, match="cycle"):
        layers(2, [(0, 1), (1, 0)])


@given(numbered_edges, st.lists(st.tuples(st.integers(0, 90), st.integers(0, 90)), min_size=1, max_size=7))
def test_things_in_a_row_stand_in_order_and_apart(
    numbered: tuple[int, list[tuple[int, int]]], sides: list[tuple[int, int]]
) -> None:
    count, edges = numbered
    rows = arrange(count, [(a, b) for a, b in edges if a < b])
    extents = [Extent(*side) for side, _ in zip(itertools.cycle(sides), rows.row, strict=False)]
    x = place(rows, extents, 10)
    for nodes in rows.rows:
        for left, right in itertools.pairwise(nodes):
            assert x[left] + extents[left].right + 10 <= x[right] - extents[right].left + 1e-6
    assert min(value - extent.left for value, extent in zip(x, extents, strict=True)) == pytest.approx(0)


def test_a_chain_and_a_long_edge_are_straight() -> None:
    rows = arrange(6, [(0, 1), (1, 2), (2, 3), (3, 4), (0, 5), (5, 4), (0, 4)])
    x = place(rows, [Extent(20, 20)] * len(rows.row), 10)
    assert len({x[node] for node in (1, 2, 3)}) == 1
    assert len({x[node] for node in rows.chains[-1][1:-1]}) == 1


@given(st.lists(st.floats(-500, 500), min_size=1, max_size=40), st.floats(5, 200))
def test_ports_lie_on_their_side_in_order(wanted: list[float], half: float) -> None:
    ports = spread(sorted(wanted), 0.0, half)
    assert ports == sorted(ports)
    assert -half - 0.01 <= ports[0] <= ports[-1] <= half + 0.01


@pytest.mark.parametrize("path", sorted((DATA / "good").iterdir()), ids=lambda path: path.name)
def test_every_operator_and_edge_is_in_the_picture(path: Path) -> None:
    graph = JobGraph.of(parse_topology(path))
    root = ElementTree.fromstring(topology_svg(graph))
    groups = {group.get("data-operator"): group for group in root.iter(f"{SVG}g") if group.get("data-operator")}
    assert list(groups) == [op.id for op in graph.topology.operators]
    for op in graph.topology.operators:
        texts = list(groups[op.id].iter(f"{SVG}text"))
        assert "".join(text.text or "" for text in texts if "name" in (text.get("class") or "").split()) == op.id
        about = texts[-1].text or ""
        assert about.startswith(f"{op.kind}, {op.parallelism} task")
    drawn = {(g.get("data-from"), g.get("data-to")): g for g in root.iter(f"{SVG}g") if g.get("data-from")}
    assert list(drawn) == [(edge.source, edge.target) for edge in graph.topology.edges]
    shown = [text.text for text in root.iter(f"{SVG}text")]
    for edge in graph.topology.edges:
        dashed = "dashed" in (drawn[edge.source, edge.target][1].get("class") or "")
        assert dashed == graph.is_back(edge)
        assert edge.partition is Partition.FORWARD or any(
            text and text.startswith(edge.partition.value) for text in shown
        )


def test_no_label_repeats_and_inputs_that_differ_have_theirs_on_the_edges() -> None:
    picture = topology_svg(JobGraph.of(parse_topology(DATA / "good" / "imports.yaml")))
    assert picture.count(">hash(module, reached)</text>") == 1
    assert "forward</text>" not in picture
    assert "an edge without a name: forward" in picture
    operators = (Operator("s", Kind.SOURCE, 2, 8), Operator("t", Kind.SOURCE, 2, 8), Operator("j", Kind.JOIN, 2, 8))
    edges = (Edge("s", "j", Partition.HASH, ("k",)), Edge("t", "j", Partition.BROADCAST))
    mixed = topology_svg(JobGraph.of(Topology("mixed", operators, edges)))
    assert [mixed.count(f">{label}</text>") for label in ("hash(k)", "broadcast")] == [1, 1]


@given(numbered_edges, st.lists(st.tuples(st.integers(16, 40), st.integers(6, 200)), min_size=1, max_size=5))
def test_data_flows_to_the_right_and_labels_have_their_room(
    numbered: tuple[int, list[tuple[int, int]]], labels: list[tuple[int, int]]
) -> None:
    links = [
        link._replace(label=float(high), along=float(wide))
        for link, (high, wide) in zip(links_of(graph_of(*numbered), [16.0]), itertools.cycle(labels), strict=False)
    ]
    layout = lay_out_rightwards([(100, 44)] * numbered[0], links)
    boxes = layout.boxes
    for link, route in zip(links, layout.routes, strict=True):
        x, y = route.label
        label = Box(x - link.along / 2, y - link.label / 2, link.along, link.label)
        assert not any(overlap(label, box) for box in boxes)
        if link.source != link.target:
            first, second = (boxes[link.target], boxes[link.source]) if link.back else (
                boxes[link.source], boxes[link.target]
            )
            assert first.right < second.left


def test_loops_are_marked_in_words_as_the_list_numbers_them() -> None:
    picture = topology_svg(JobGraph.of(parse_topology(DATA / "good" / "imports.yaml")))
    assert "distinct, 4 tasks, loop 1" in picture
    assert "opaque, 4 tasks, loop 2" in picture
    assert "sink, 4 tasks</text>" in picture


def test_the_picture_has_a_name_and_stands_alone() -> None:
    picture = topology_svg(JobGraph.of(parse_topology(DATA / "good" / "wordcount.yaml")))
    root = ElementTree.fromstring(picture)
    assert [child.tag for child in root][:2] == [f"{SVG}title", f"{SVG}desc"]
    assert "4 operators" in (root[1].text or "")
    assert root.get("role") == "img"
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags == {"svg", "title", "desc", "style", "rect", "text", "g", "path"}
    assert "@import" not in picture
    assert "url(" not in picture
    assert "id=" not in picture
    assert picture.count("http") == 1


def test_names_are_only_text_in_the_picture() -> None:
    key = ('"]]></style><script>', "b\x1b[31m\x00", "\ufffe", "&amp;", "\udc80", "日本語")
    operators = (Operator("'\"><script>alert(1)</script>", Kind.SOURCE, 1, 1), Operator("<!--", Kind.SINK, 1, 1))
    edges = tuple(Edge(operators[0].id, operators[1].id, Partition.HASH, (column,)) for column in key)
    for edge in edges:
        picture = topology_svg(JobGraph.of(Topology("</title>\x1b\r\n", operators, (edge,))))
        assert picture.isascii()
        root = ElementTree.fromstring(picture)
        assert not list(root.iter(f"{SVG}script"))
        assert [g.get("data-operator") for g in root.iter(f"{SVG}g") if g.get("data-operator")] == [
            op.id for op in operators
        ]
        assert root[0].text == "Job graph of </title>\\x1b\\r\\n"


def test_a_long_name_is_shortened_on_its_box_and_whole_in_its_tooltip() -> None:
    id = "an-operator-with-a-long-name." * 9 + "end"
    source = f"version: 1\njob: t\noperators:\n  {id}: {{}}\n"
    root = ElementTree.fromstring(topology_svg(JobGraph.of(parse_topology_bytes(source.encode(), "t"))))
    group = next(g for g in root.iter(f"{SVG}g") if g.get("data-operator") == id)
    assert (group[0].text or "").startswith(id)
    names = [text.text or "" for text in group.iter(f"{SVG}text")][:-1]
    assert len(names) == 3
    assert max(map(len, names)) <= 28
    assert names[0] == "an-operator-with-a-long-"
    assert "…" in names[2]
    assert names[2].endswith("end")


def test_a_graph_without_operators_or_edges_is_a_picture_too() -> None:
    assert ElementTree.fromstring(topology_svg(JobGraph.of(Topology("none", (), ()))))[0].text == "Job graph of none"
    ElementTree.fromstring(topology_svg(JobGraph.of(Topology("one", (Operator("o", Kind.OPAQUE, 1, 1),), ()))))


@pytest.mark.parametrize("shape", ["branching", "dense", "chain with loops"])
def test_200_operators_are_drawn_in_a_second_or_so(shape: str) -> None:
    count = 200
    edges = {
        "branching": [(at // 3, at) for at in range(1, count)] + [(at, at // 9) for at in range(9, count, 40)],
        "dense": [(at - back, at) for at in range(count) for back in (1, 7, 30) if at >= back],
        "chain with loops": [(at, at + 1) for at in range(count - 1)] + [(at, at - 5) for at in range(5, count, 2)],
    }[shape]
    graph = graph_of(count, edges)
    started = time.process_time()
    picture = topology_svg(graph)
    assert time.process_time() - started < 5
    assert picture.count("data-operator=") == count
    assert picture.count("data-from=") == len(edges)
    links = links_of(graph, [48.0])
    layout = lay_out([(120, 44)] * count, links)
    for one, other in itertools.combinations(layout.boxes, 2):
        assert not overlap(one, other)
