"""Answers of the control API for people: tables, or a few lines."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Columns = Mapping[str, str]
"""Title to the path of the field that it shows."""

_WIDEST = 60


def table(rows: Sequence[Mapping[str, Any]], columns: Columns, empty: str) -> Iterator[str]:
    """One line a row, columns aligned."""
    if not rows:
        yield empty
        return
    cells = [list(columns), *([_cell(row, path) for path in columns.values()] for row in rows)]
    widths = [min(_WIDEST, max(len(row[column]) for row in cells)) for column in range(len(columns))]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def lines(told: Mapping[str, Any], names: Iterable[str]) -> Iterator[str]:
    """One field a line."""
    names = list(names)
    width = max(map(len, names))
    for name in names:
        yield f"{name.ljust(width)}  {_cell(told, name)}"


def changes(planned: Mapping[str, Any]) -> Iterator[str]:
    """A plan, as a diff is read."""
    found = planned["changes"]
    if not found:
        yield "nothing would change"
    signs = {"create": "+", "edit": "~", "delete": "-"}
    for change in found:
        yield f"{signs[change['kind']]} {change['service']}"
        for field in change["fields"]:
            yield f"    {field['field']}: {_text(field['before'])} -> {_text(field['after'])}"


def _cell(row: Mapping[str, Any], path: str) -> str:
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return _text(value)


def _text(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(one, str | int) for one in value):
        return ", ".join(map(str, value)) or "-"
    return json.dumps(value)
