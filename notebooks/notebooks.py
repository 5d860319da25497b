"""The notebooks: executed in place, and turned into pages of the documentation.

`python notebooks/notebooks.py` runs every notebook of this folder and writes what its cells show
into it. mkdocs takes the same file as a hook: each notebook becomes a page of the site.
"""

import ast
import base64
import contextlib
import io
import json
from html import escape
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells(path: Path) -> list[dict[str, Any]]:
    """The cells of a notebook, with their sources as text."""
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [{**cell, "source": "".join(cell["source"])} for cell in found]


def run(code: str, names: dict[str, Any], where: str) -> tuple[str, Any]:
    """Execute a cell: what it printed, and the value of its last line where that is one."""
    tree = ast.parse(code, where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, where, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)
    return printed.getvalue(), value


def words(figure: Any) -> str:
    """What a picture says in words: titles, axes and legends, without the numbers on the axes."""
    said = []
    for ax in figure.axes:
        said += [ax.get_title(), ax.get_xlabel(), ax.get_ylabel()]
        legend = ax.get_legend()
        said += [] if legend is None else [one.get_text() for one in legend.get_texts()]
    return "Picture: " + ", ".join(dict.fromkeys(" ".join(one.split()) for one in said if one))


def shown(value: Any) -> dict[str, Any] | None:
    """A value as Jupyter shows it: a picture, a table, or text."""
    from matplotlib import pyplot
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    if value is None:
        return None
    if isinstance(value, Axes | Figure):
        figure = value.figure if isinstance(value, Axes) else value
        picture = io.BytesIO()
        figure.savefig(picture, dpi=80, bbox_inches="tight", metadata={"Software": None})
        pyplot.close("all")
        data = base64.b64encode(picture.getvalue()).decode()
        return {"image/png": data, "text/plain": words(figure)}
    data = {"text/plain": repr(value)}
    if hasattr(value, "_repr_html_"):
        data["text/html"] = value._repr_html_()
    return data


def execute(path: Path) -> dict[str, Any]:
    """The notebook with what its cells show; the names that it leaves are under "names"."""
    from matplotlib import pyplot

    pyplot.switch_backend("Agg")
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        number += 1
        printed, value = run("".join(cell["source"]), names, f"{path.name}, cell {number}")
        outputs: list[dict[str, Any]] = []
        if printed:
            lines = printed.splitlines(keepends=True)
            outputs.append({"name": "stdout", "output_type": "stream", "text": lines})
        data = shown(value)
        if data is not None:
            outputs.append(
                {"data": data, "execution_count": number, "metadata": {},
                 "output_type": "execute_result"}
            )  # fmt: skip
        cell["outputs"], cell["execution_count"] = outputs, number
    return {**notebook, "names": names}


def page(path: Path) -> str:
    """A notebook as Markdown, with its pictures inside."""
    parts = []
    for cell in cells(path):
        if cell["cell_type"] == "markdown":
            parts.append(cell["source"])
            continue
        parts.append(f"```python\n{cell['source']}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                said = escape(data["text/plain"])
                parts.append(f'<img alt="{said}" src="data:image/png;base64,{data["image/png"]}">')
            elif "text/html" in data:
                parts.append(data["text/html"])
            else:
                text = "".join(output["text"]) if "text" in output else data["text/plain"]
                parts.append(f"```\n{text.rstrip()}\n```")
    where = f"*This page is the notebook `notebooks/{path.name}`, as it ran.*"
    return "\n\n".join([*parts, where, ""])


def on_files(files: Any, config: Any) -> Any:
    """mkdocs: add a page for each notebook."""
    from mkdocs.structure.files import File

    for path in NOTEBOOKS:
        files.append(File.generated(config, f"notebook-{path.stem}.md", content=page(path)))
    return files


def main() -> None:
    for path in NOTEBOOKS:
        done = execute(path)
        done.pop("names")
        text = json.dumps(done, indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")
        print(path.name)


if __name__ == "__main__":
    main()
