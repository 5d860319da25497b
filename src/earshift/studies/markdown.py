"""The results page of a study: results.md and summary.json, written from its rows alone.

Everything that the pages of all studies share is here: where the numbers come from, tables, what
was asked for beside what was reached, pictures.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from earshift import __version__
from earshift.studies.run import effort_of


@dataclass(frozen=True)
class Target:
    """Something that was asked for, and what the study reached; `rule` says of which rule.

    `good` is None where nothing was asked for and the number stands for comparison.
    """

    asked: str
    reached: str
    good: bool | None
    rule: str = ""


class Page:
    """A page that grows from top to bottom, and the summary that programs read beside it."""

    def __init__(
        self,
        title: str,
        command: str,
        out: Path,
        summary: dict[str, Any],
        effort_in: Path | None = None,
    ) -> None:
        """`effort_in` is the folder that knows how long the study took, if not `out` itself."""
        self.out, self.summary = out, summary
        self.lines: list[str] = []
        self.heading(title, 2)
        self.add(origin(command, out if effort_in is None else effort_in))

    def add(self, *lines: str) -> None:
        """A paragraph or a list."""
        self.lines += [*lines, ""]

    def heading(self, text: str, level: int = 3) -> None:
        self.add(f"{'#' * level} {text}")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        self.add(*table(columns, rows))

    def targets(self, targets: Sequence[Target]) -> None:
        """What was asked for and reached, under its heading."""
        self.heading("Asked for and reached")
        self.add(*target_table(targets))

    def picture(self, text: str, name: str) -> None:
        self.add(f"![{text}]({name})")

    def write(self) -> dict[str, Any]:
        """Write both files, and give the summary back."""
        (self.out / "results.md").write_text("\n".join(self.lines), encoding="utf-8")
        text = json.dumps(self.summary, indent=2) + "\n"
        (self.out / "summary.json").write_text(text, encoding="utf-8")
        return self.summary


def origin(command: str, out: Path) -> str:
    """Which command and version wrote a page, and how long the study took."""
    effort = effort_of(out)
    note = f" {effort}." if effort else ""
    return f"Written by `{command}` (earshift {__version__}), not edited by hand.{note}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown, line by line."""
    return [_row(columns), "|" + "---|" * len(columns), *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def target_table(targets: Sequence[Target]) -> list[str]:
    """What was asked for beside what was reached, with a column for the rule if there are any."""
    ruled = any(target.rule for target in targets)
    return table(
        [*(["rule"] if ruled else []), "asked for", "reached", ""],
        [
            [
                *([target.rule] if ruled else []),
                target.asked,
                target.reached,
                {True: "yes", False: "**no**", None: ""}[target.good],
            ]
            for target in targets
        ],
    )
