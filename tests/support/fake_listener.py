"""A server that speaks the listener's part of the API and plays what a test tells it to.

The real one chooses tones and silences itself; tests of timing need to choose them. Whole tests of
a person are run against the real app.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, FileSystemLoader, select_autoescape

import earshift

WEB = Path(earshift.__file__).parent / "web"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# Tells how loud each block of samples was that reached the ears, and when on the audio clock.
RECORDER = """
class Recorder extends AudioWorkletProcessor {
  process([input]) {
    const loudest = input.flatMap((channel) => Array.from(channel, Math.abs));
    this.port.postMessage({ time: currentTime, loudest: Math.max(0, ...loudest) });
    return true;
  }
}
registerProcessor("recorder", Recorder);
"""
FAST = {
    "pulses": 2,
    "pulse_ms": 60,
    "pause_ms": 40,
    "ramp_ms": 20,
    "window_opens_ms": 100,
    "window_closes_ms": 500,
    "gap_min_ms": 200,
    "gap_max_ms": 200,
}
RELATIVE = {
    "kind": "relative",
    "unit": "relative dB",
    "device": "the practice tablet",
    "fingerprint": {
        "browser": "Chrome",
        "system": "Linux",
        "sample_rate": 44100,
        "channels": 2,
        "earphones": "Model 200",
        "connection": "wired",
        "volume": "8 of 16 bars",
    },
    "channel": {"left": 0, "right": 1},
    "table": None,
    "zero_dbfs": -90,
    "floor_dbfs": -90,
    "highest_dbfs": -20,
    "cap_db": 70,
    "cap_db_spl": None,
}


def tone(level: float | None = 30.0, gap_ms: float = 200.0) -> dict[str, Any]:
    """A presentation without its number; None is silence."""
    dbfs = None if level is None else level + RELATIVE["zero_dbfs"]
    return {"frequency_hz": 1000, "level": level, "dbfs": dbfs, "gap_ms": gap_ms, "practice": False}


@dataclass
class FakeExam:
    """What is to be played, and what the page said to it."""

    presentations: list[dict[str, Any]]
    timing: dict[str, Any] = field(default_factory=lambda: dict(FAST))
    sound: dict[str, Any] = field(default_factory=lambda: dict(RELATIVE))
    problem: str | None = None  # what has to be mended before it goes on
    released: list[dict[str, str]] | None = None
    ready: bool = False
    held: bool = False  # by the examiner
    answered: int = 0
    said: list[tuple[str, Any]] = field(default_factory=list)

    def play(self) -> dict[str, Any]:
        over = self.answered >= len(self.presentations)
        state = "over" if over else "play" if self.ready else "held" if self.held else "check"
        shown = None
        if state == "play":
            shown = {**self.presentations[self.answered], "trial": self.answered + 1}
        return {
            "state": state,
            "held_by_examiner": state == "held",
            "exam": {"now": 1, "of": 1},
            "ear": "right",
            "sound": self.sound,
            "timing": self.timing,
            "progress": {"answered": self.answered, "at_most": len(self.presentations)},
            "presentation": shown,
            "problem": self.problem if state == "check" else None,
            "released": self.released,
        }

    def told(self, what: str) -> list[Any]:
        return [body for name, body in self.said if name == what]

    def tell(self, what: str, body: dict[str, Any]) -> None:
        self.said.append((what, body))
        if what == "ready":
            self.ready = True
        elif what == "stop":
            self.ready = False
        elif what == "answer" and self.ready and body["trial"] == self.answered + 1:
            self.answered += 1


def fake_app(exams: dict[str, FakeExam]) -> FastAPI:
    """The page, its files and the listener's calls, for one exam a token."""
    app = FastAPI()
    texts: dict[str, str] = json.loads((WEB / "texts" / "en.json").read_text(encoding="utf-8"))
    templates = Environment(
        loader=FileSystemLoader(WEB / "templates"), autoescape=select_autoescape()
    )

    def texts_below(*prefixes: str) -> dict[str, str]:
        return {key: text for key, text in texts.items() if key.startswith(prefixes)}

    @app.get("/listen")
    def page() -> HTMLResponse:
        shell = templates.get_template("listen.html").render(t=texts.__getitem__, texts=texts_below)
        return HTMLResponse(shell, headers={"Content-Security-Policy": CSP})

    @app.get("/recorder.js")
    def recorder() -> Response:
        return Response(RECORDER, media_type="text/javascript")

    def exam_of(request: Request) -> FakeExam:
        return exams[request.headers["Authorization"].removeprefix("Listener ")]

    @app.get("/api/listen")
    def play(request: Request) -> dict[str, Any]:
        return exam_of(request).play()

    @app.post("/api/listen/{what}")
    async def tell(what: str, request: Request) -> Response:
        exam = exam_of(request)
        exam.tell(what, await request.json())
        if what == "press":
            return Response(status_code=204)
        return Response(json.dumps(exam.play()), media_type="application/json")

    app.mount("/static", StaticFiles(directory=WEB / "static"))
    return app
