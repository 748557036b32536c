"""Figures: what was measured, beside the floor that must hold and the goal that is aimed at."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. `floor` and `goal` are bounds: from above, or from below where `higher` is better."""

    name: str
    value: float
    unit: str
    floor: float | None = None
    goal: float | None = None
    higher: bool = False
    note: str = ""

    def holds(self, bound: float | None) -> bool | None:
        if bound is None:
            return None
        return self.value >= bound if self.higher else self.value <= bound

    @property
    def verdict(self) -> str:
        if self.holds(self.floor) is False:
            return "under the floor"
        if self.holds(self.goal) is False:
            return "short of the goal"
        return "" if self.floor is None and self.goal is None else "holds"

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}


def percentile(values: Iterable[float], share: float) -> float:
    """The value below which `share` of them lie; `nan` of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def _shown(value: float | None, higher: bool = False, bound: bool = False) -> str:
    if value is None:
        return ""
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.1f}" if abs(value) >= 10 else f"{value:,.3g}"
    return f"{'≥' if higher else '≤'} {text}" if bound else text


def table(title: str, figures: Sequence[Figure]) -> str:
    """The figures as a Markdown table, as wide as it must be."""
    rows = [("", "measured", "unit", "floor", "goal", "")]
    for figure in figures:
        bounds = [_shown(bound, figure.higher, bound=True) for bound in (figure.floor, figure.goal)]
        rows.append((figure.name, _shown(figure.value), figure.unit, *bounds, figure.verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    notes = [f"- {figure.name}: {figure.note}" for figure in figures if figure.note]
    return "\n".join([f"## {title}", "", *lines, *(["", *notes] if notes else [])])
