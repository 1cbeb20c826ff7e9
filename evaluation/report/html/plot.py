"""A chart as SVG: axes, lines, bands, marks, and a readout that a pointer or the keyboard opens, all without script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from evaluation.report.html.markup import Child, Markup, h
from evaluation.report.html.scales import Scale
from evaluation.report.html.texts import say

LINE = 17  # height of a readout's line
Point = tuple[float, float]


class Plot:
    """Drawn in the order of the calls; `x` and `y` must run over `Plot.area`."""

    left, right, top, bottom = 58, 18, 30, 40

    def __init__(self, width: int, height: int, x: Callable[[float, float], Scale], y: Callable[..., Scale]) -> None:
        self.width, self.height = width, height
        self.x, self.y = x(self.left, width - self.right), y(height - self.bottom, self.top)
        self.parts: list[Markup] = []
        self.hot: list[Markup] = []

    def add(self, tag: str, *children: Child, **attributes: object) -> None:
        self.parts.append(h(tag, *children, **attributes))

    def axes(self, x_title: str, y_title: str, value: Callable[[float], str]) -> None:
        floor = self.height - self.bottom
        for tick in self.y.ticks():
            at = self.y(tick)
            self.add("line", class_="grid", x1=self.left, x2=self.width - self.right, y1=at, y2=at)
            self.add("text", value(tick), class_="tick", x=self.left - 8, y=at + 4, text_anchor="end")
        for tick in self.x.ticks(8):
            at = self.x(tick)
            self.add("line", class_="grid faint", x1=at, x2=at, y1=self.top, y2=floor)
            self.add("text", f"{tick:g}", class_="tick", x=at, y=floor + 17, text_anchor="middle")
        self.add("line", class_="axis", x1=self.left, x2=self.width - self.right, y1=floor, y2=floor)
        middle = (self.left + self.width - self.right) / 2
        self.add("text", say(x_title, svg=True), class_="title", x=middle, y=self.height - 5, text_anchor="middle")
        self.add("text", say(y_title, svg=True), class_="title", x=4, y=14)

    def band(self, low: float, high: float, class_: str) -> None:
        """A vertical band, at least 2 wide so that a narrow interval is still seen."""
        start, end = self.x(low), self.x(high)
        width = max(end - start, 2)
        self.add("rect", class_=class_, x=start, y=self.top, width=width, height=self.height - self.bottom - self.top)

    def ribbon(self, points: Sequence[tuple[float, float, float]], class_: str) -> None:
        """Between the second and the third of each point."""
        upper = [f"{self.x(x)},{self.y(high)}" for x, _, high in points]
        lower = [f"{self.x(x)},{self.y(low)}" for x, low, _ in reversed(points)]
        if len(points) > 1:
            self.add("polygon", class_=class_, points=" ".join(upper + lower))

    def line(self, points: Iterable[Point | None], class_: str) -> None:
        """A gap in the points stays a gap."""
        runs: list[list[Point]] = [[]]
        for point in points:
            if point is None:
                runs.append([])
            else:
                runs[-1].append(point)
        for run in runs:
            if len(run) > 1:
                drawn = " ".join(f"{self.x(x)},{self.y(y)}" for x, y in run)
                self.add("polyline", class_=f"line {class_}", points=drawn)

    def limit(self, value: float, label: Child, class_: str = "slo") -> None:
        """A horizontal line with its label at the right end, above it; off the chart, it lies on its edge."""
        at = self.y(value)
        self.add("line", class_=class_, x1=self.left, x2=self.width - self.right, y1=at, y2=at)
        above = at - 6 if at - self.top > 16 else at + 15
        self.add("text", label, class_=f"{class_}-label", x=self.left + 8, y=above)

    def vertical(self, value: float, label: Child, class_: str, row: int = 0) -> None:
        at = self.x(value)
        self.add("line", class_=class_, x1=at, x2=at, y1=self.top, y2=self.height - self.bottom)
        near_end = at > self.width - self.right - 150
        self.add(
            "text",
            label,
            class_=f"{class_}-label",
            x=at - 6 if near_end else at + 6,
            y=self.top + 12 + 15 * row,
            text_anchor="end" if near_end else "start",
        )

    def mark(self, x: float, y: float, shape: str, class_: str) -> None:
        """`shape`: circle, ring, square, triangle, cross, star."""
        at, up = self.x(x), self.y(y)
        if shape in ("circle", "ring"):
            self.add("circle", class_=f"mark {shape} {class_}", cx=at, cy=up, r=4.5)
        elif shape == "star":
            self.add("circle", class_=f"halo {class_}", cx=at, cy=up, r=10)
        elif shape == "cross":
            path = f"M{at - 4.5} {up - 4.5}L{at + 4.5} {up + 4.5}M{at - 4.5} {up + 4.5}L{at + 4.5} {up - 4.5}"
            self.add("path", class_=f"mark cross {class_}", d=path)
        else:
            path = {
                "square": f"M{at - 4} {up - 4}h8v8h-8z",
                "triangle": f"M{at} {up - 5.5}L{at + 5.5} {up + 4.5}H{at - 5.5}z",
            }[shape]
            self.add("path", class_=f"mark {shape} {class_}", d=path)

    def whisker(self, x: float, low: float, high: float, class_: str) -> None:
        at = self.x(x)
        self.add("line", class_=f"whisker {class_}", x1=at, x2=at, y1=self.y(low), y2=self.y(high))

    def readout(self, x: float, span: tuple[float, float], lines: Sequence[tuple[Child, Child]], name: str) -> None:
        """A column from span[0] to span[1] (of x's values) that shows `lines` while pointed at or focused."""
        at, start, end = self.x(x), self.x(span[0]), self.x(span[1])
        width, height = 236, 14 + LINE * len(lines)
        left = at + 12 if at + 12 + width < self.width else at - 12 - width
        rows = [
            (
                h("text", name_, class_="key", x=left + 10, y=self.top + 20 + LINE * row),
                h("text", value, class_="value", x=left + width - 10, y=self.top + 20 + LINE * row, text_anchor="end"),
            )
            for row, (name_, value) in enumerate(lines)
        ]
        shown = h(
            "g",
            h("line", class_="cursor", x1=at, x2=at, y1=self.top, y2=self.height - self.bottom),
            h("rect", class_="box", x=left, y=self.top + 2, width=width, height=height, rx=6),
            rows,
            class_="readout",
        )
        column = h(
            "rect", class_="column", x=start, y=self.top, width=max(end - start, 1), height=self.height - self.top - 20
        )
        self.hot.append(h("g", column, shown, class_="hot", tabindex="0", role="img", aria_label=name))

    def readouts(self, columns: Sequence[tuple[float, Sequence[tuple[Child, Child]], str]]) -> None:
        """One column per point, parted in the middle between neighbours; points at one load share it."""
        places = sorted({x for x, _, _ in columns})
        for x, lines, name in columns:
            index = places.index(x)
            before = (places[index - 1] + x) / 2 if index else self.x.low
            after = (places[index + 1] + x) / 2 if index + 1 < len(places) else self.x.high
            self.readout(x, (before, after), lines, name)

    def svg(self, name: str) -> Markup:
        return h(
            "svg",
            self.parts,
            self.hot,
            class_="plot" if self.width < 600 else "plot wide",
            viewBox=f"0 0 {self.width} {self.height}",
            role="group",
            aria_label=name,
        )
