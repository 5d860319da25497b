"""Write the OpenAPI description of the web API: the types of the pages' scripts come from it.

python frontend/openapi.py build/front/openapi.json
"""

import json
import sys
import tempfile
from pathlib import Path

from earshift.web import Settings, create_app


def describe(target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="earshift-openapi-") as folder:
        app = create_app(Settings(db=str(Path(folder) / "clinic.db")))
        app.state.sessions.close()
        app.state.store.close()
    target.write_text(json.dumps(app.openapi(), indent=1), encoding="utf-8")


if __name__ == "__main__":
    describe(Path(sys.argv[1]))
