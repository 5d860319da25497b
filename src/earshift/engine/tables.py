"""Results as rows, data frames and small HTML tables for notebooks."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from earshift.engine.refusal import Refusal

if TYPE_CHECKING:
    import polars

Row = dict[str, Any]  # plain values alone: numbers, texts, True and False, None
Columns = Mapping[str, type]  # the columns of a table and the type of each


def filled(row: Mapping[str, Any], columns: Columns) -> Row:
    """A row with all columns in order, None where it has no value, numbers as plain ones."""
    return {
        name: None if (value := row.get(name)) is None else kind(value)
        for name, kind in columns.items()
    }


def frame(rows: Sequence[Row], columns: Columns) -> "polars.DataFrame":
    """The rows as a polars frame with the types of the columns, also where all is missing."""
    try:
        import polars
    except ImportError:
        raise Refusal(
            "a data frame needs the package polars",
            code="missing-package",
            advice="pip install 'earshift[study]', or take rows(): pandas.DataFrame(x.rows())",
        ) from None
    kinds = {int: polars.Int64, float: polars.Float64, str: polars.String, bool: polars.Boolean}
    schema = {name: kinds[kind] for name, kind in columns.items()}
    return polars.DataFrame(list(rows), schema=schema, orient="row")


def html(title: str, facts: Sequence[str] = (), rows: Sequence[Row] = ()) -> str:
    """A heading, some sentences and a table, all escaped, for a notebook to show."""
    parts = [f"<p><strong>{escape(title)}</strong></p>"]
    parts += [f"<p>{escape(fact)}</p>" for fact in facts]
    if rows:
        head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row.values()) + "</tr>"
            for row in rows
        )
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    return f"<div>{''.join(parts)}</div>"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (
        f"{value:.4g}"
        if isinstance(value, float) and abs(value) < 100
        else (f"{value:.0f}" if isinstance(value, float) else str(value))
    )
