"""Whether the code of other programs in docs/coming-from.md runs: part of `make psychopy-check`.

AEPsych needs a server of its own and torch, and is left out.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

from matplotlib import pyplot


def main(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    start = re.search(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert start is not None
    pyplot.switch_backend("Agg")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for title, code in re.findall(r"^## (\w+)\n.*?^```py\n(.*?)^```", text, re.M | re.S):
            if title == "AEPsych":
                continue
            names: dict[str, object] = {}
            exec(compile(start[1] + code, f"{page.name}, {title}", "exec"), names)
            print(f"{title}: runs")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
