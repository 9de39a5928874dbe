"""Check and store attributes: one column per name, each of one kind of value.

A column grows at its end only, so a search that began before sees what it was. Strings
are kept once each, and rows hold their numbers. Polars would build columns faster and
filter them more slowly (`python -m benchmarks.search rows`), and takes 181 MB.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfdml.index.rows._column_view import TYPES, ColumnView, Scalar
from tfdml.index.rows._growing_array import GrowingArray
from tfdml.index.rows._ids import check_text, check_texts
from tfdml.index.rows._words import Words
from tfdml.messages import shown

Checked = Mapping[str, tuple[str, list[Scalar | None]]]
"""Kind and values of attributes by name, as `check_attributes` returns them."""

_DTYPES: dict[str, np.dtype[Any]] = {
    "string": np.dtype(np.int32),
    "integer": np.dtype(np.int64),
    "number": np.dtype(np.float64),
    "boolean": np.dtype(np.bool_),
}


def check_attributes(
    attributes: Mapping[str, Sequence[Any]] | None,
    rows: int,
    kinds: Mapping[str, str],
    may_become: Callable[[str, str], bool] = lambda name, kind: False,
) -> dict[str, tuple[str, list[Scalar | None]]]:
    """Check attributes and find the kind of each.

    Args:
        attributes: As in `Index.add`.
        rows: How many values each must have.
        kinds: The kinds of the attributes that the index has.
        may_become: Returns whether an attribute of the index may take another kind.

    Returns:
        Kind and values by name. Integers become floats where the index has numbers.

    Raises:
        ValueError: A name, a number of values or a value is not as it should be.
    """
    checked: dict[str, tuple[str, list[Scalar | None]]] = {}
    if attributes is not None and not isinstance(attributes, Mapping):
        raise ValueError(
            "`attributes` must be a dictionary from names to sequences of values. "
            f"Received: {type(attributes).__name__}."
        )
    for name, given in (attributes or {}).items():
        if not isinstance(name, str) or not name:
            raise ValueError(
                f"`attributes` must have non-empty strings as names. "
                f"Received: {shown(name)}."
            )
        check_text("A name in `attributes`", name)
        values = _listed(name, given)
        if len(values) != rows:
            raise ValueError(
                f"`attributes[{shown(name)}]` must hold one value for each of the "
                f"{rows} rows. Received: {len(values)} values."
            )
        # Millions of values are of few types: these are looked at instead.
        types = set(map(type, values))
        there = values
        if type(None) in types:
            there = [value for value in values if value is not None]
            types.remove(type(None))
        kind = _kind(name, there, types, kinds.get(name), may_become)
        if kind is not None:
            checked[name] = kind, _converted(name, kind, values, there, types)
    return checked


def _listed(name: str, given: Any) -> list[Any]:
    values = given.tolist() if isinstance(given, np.ndarray) else given
    unordered = str | bytes | Mapping | set | frozenset
    if isinstance(values, unordered) or not isinstance(values, Iterable):
        raise ValueError(
            f"`attributes[{shown(name)}]` must be a sequence with a value for each "
            f"row. Received: {shown(values)}."
        )
    return list(values)


def _kind(
    name: str,
    values: list[Any],
    types: set[type],
    known: str | None,
    may_become: Callable[[str, str], bool],
) -> str | None:
    """Return the kind of a column, None where it has no value and is not known.

    Args:
        name: That of the attribute.
        values: Those that are not None.
        types: Their types.
        known: The kind that the index has.
        may_become: As in `check_attributes`.
    """
    of_types = {type_: _kind_of(type_) for type_ in types}
    if None in of_types.values():
        other = next(t for t in map(type, values) if of_types[t] is None)
        raise ValueError(
            f"`attributes[{shown(name)}]` must hold strings, integers, floats, "
            f"booleans or None. Received: {other.__name__}."
        )
    found = set(of_types.values())
    if found == {"integer"}:
        _check_integers(name, values)
    elif "integer" in found:
        _check_integers(name, [v for v in values if of_types[type(v)] == "integer"])
    if found == {"integer", "number"} or (found == {"integer"} and known == "number"):
        found = {"number"}
    if len(found) > 1:
        raise ValueError(
            f"`attributes[{shown(name)}]` must hold values of one kind. "
            f"Received: {' and '.join(sorted(map(str, found)))}."
        )
    kind = found.pop() if found else known
    if known is None or kind is None or kind == known or may_become(name, kind):
        return kind
    if (known, kind) == ("integer", "number"):
        raise ValueError(
            f"`attributes[{shown(name)}]` must hold integers, as in the index: they "
            "cannot become floats, because some are beyond 2**53 or the index is in "
            "Milvus. Received: floats. Use another name for floats."
        )
    raise ValueError(
        f"`attributes[{shown(name)}]` must hold values of the kind that the index has, "
        f"{known}. Received: {kind}. Use another name for them."
    )


def _kind_of(type_: type) -> str | None:
    """Return the kind of the values of a type, None where there is none."""
    if issubclass(type_, bool | np.bool_):
        return "boolean"
    if issubclass(type_, int | np.integer):
        return "integer"
    if issubclass(type_, float | np.floating):
        return "number"
    return "string" if issubclass(type_, str) else None


def _check_integers(name: str, values: list[Any]) -> None:
    for value in (min(values), max(values)):
        if not -(2**63) <= int(value) < 2**63:
            raise ValueError(
                f"`attributes[{shown(name)}]` must fit int64. Received: {shown(value)}."
            )


def _converted(
    name: str, kind: str, values: list[Any], there: list[Any], types: set[type]
) -> list[Scalar | None]:
    """Check values by their kind, and return all in the type that it has.

    Args:
        name: That of the attribute.
        kind: Its kind.
        values: All values.
        there: Those that are not None.
        types: Their types.
    """
    own = TYPES[kind]
    if types - {own}:
        there = [own(value) for value in there]
    if kind == "string":
        check_texts(f"`attributes[{name!r}]`", there)
    elif kind == "number":
        numbers = np.array(there, np.float64)
        if not np.isfinite(numbers).all():
            raise ValueError(
                f"`attributes[{shown(name)}]` must be finite; use None for a missing "
                f"value. Received: {shown(numbers[~np.isfinite(numbers)][0].item())}."
            )
    if not types - {own}:
        return values
    rest = iter(there)
    converted = [None if value is None else next(rest) for value in values]
    if kind == "number":
        _check_exact(name, values, converted)
    return converted


def _check_exact(
    name: str, values: list[Any], converted: Sequence[Scalar | None]
) -> None:
    for value, new in zip(values, converted, strict=True):
        if new != value:
            raise ValueError(
                f"`attributes[{shown(name)}]` must hold integers that a float "
                f"represents exactly, beside floats. Received: {shown(value)}."
            )


class Column:
    """The values of one attribute; it grows at its end.

    Args:
        kind: `"string"`, `"integer"`, `"number"` or `"boolean"`.
        rows: How many rows have no value, to begin with.
    """

    def __init__(self, kind: str, rows: int = 0) -> None:
        self.kind = kind
        self._values = GrowingArray(np.zeros(rows, _DTYPES[kind]))
        self._known = GrowingArray(np.zeros(rows, np.bool_))
        self._words = Words([])

    @classmethod
    def restore(
        cls, kind: str, values: NDArray[Any], known: NDArray[np.bool_], words: list[str]
    ) -> "Column":
        """Make a column of what `view` showed."""
        column = cls(kind)
        column._values = GrowingArray(values)
        column._known = GrowingArray(known)
        column._words = Words(words)
        return column

    def of_rows(self, rows: NDArray[np.int64]) -> "Column":
        """Return the values of some rows, as a column of its own."""
        view = self.view(int(rows.max(initial=-1)) + 1)
        values, known = view.values[rows], view.known[rows]
        words: list[str] = []
        if self.kind == "string":  # of rows that are gone, none are kept
            used, values[known] = np.unique(values[known], return_inverse=True)
            strings = self.words
            words = [strings[number] for number in used.tolist()]
        return Column.restore(self.kind, values, known, words)

    def as_kind(self, kind: str, rows: int) -> "Column":
        """Return the first rows as a column of another kind.

        Integers become floats. Nothing else becomes anything: what was there is to be
        of rows that are gone, and is no value of the new column.
        """
        if (self.kind, kind) != ("integer", "number"):
            return Column(kind, rows)
        view = self.view(rows)
        return Column.restore(kind, view.values.astype(np.float64), view.known, [])

    @property
    def words(self) -> list[str]:
        """The strings that rows hold the numbers of, in order of these."""
        return self._words.strings

    def put(self, start: int, values: Sequence[Scalar | None]) -> None:
        """Write checked values, one for each new row, behind the first `start` rows."""
        there: list[Any] = [value for value in values if value is not None]
        known = np.ones(len(values), np.bool_)
        if len(there) < len(values):
            known[:] = [value is not None for value in values]
        numbers = np.zeros(len(values), _DTYPES[self.kind])
        numbers[known] = self._words.add(there) if self.kind == "string" else there
        self._values.put(start, numbers)
        self._known.put(start, known)

    def view(self, rows: int) -> ColumnView:
        """Return the first rows as they are now and stay."""
        values, known = self._values.first(rows), self._known.first(rows)
        return ColumnView(self.kind, values, known, self._words)


class Columns:
    """The attributes of all rows of a table."""

    def __init__(self, columns: Mapping[str, Column] | None = None) -> None:
        self._columns = dict(columns or {})

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each attribute."""
        return {name: column.kind for name, column in self._columns.items()}

    @property
    def columns(self) -> Mapping[str, Column]:
        """The columns by name."""
        return self._columns

    def with_rows(self, start: int, checked: Checked, rows: int) -> "Columns":
        """Write what `check_attributes` returned of rows, behind the first `start`.

        Returns:
            All columns; new attributes, and those of another kind than before, are in
            these only.
        """
        columns = dict(self._columns)
        for name, (kind, _) in checked.items():
            if name not in columns:
                columns[name] = Column(kind, start)
            elif columns[name].kind != kind:
                columns[name] = columns[name].as_kind(kind, start)
        for name, column in columns.items():
            column.put(start, checked[name][1] if name in checked else [None] * rows)
        return Columns(columns)

    def view(self, rows: int) -> dict[str, ColumnView]:
        """Return the first rows of all columns as they are now and stay."""
        return {name: column.view(rows) for name, column in self._columns.items()}
