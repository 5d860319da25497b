"""A clinic with a past, made through the API: people, references, screens, devices."""

from collections.abc import Callable, Mapping
from typing import Any

import httpx

from support.web import sign_in

REFERENCE = {"500": 10, "1000": 10, "2000": 15, "3000": 20, "4000": 30, "6000": 30, "8000": 25}
HIGH_HZ = 2000
LONG_NAME = "Maria-Magdalena Theodora Wolfeschlegelsteinhausenbergerdorff de la Fuente"
EXTERNAL = {"name": "Booth 1", "transducer": "supra-aural", "model": "AC 40", "serial": "A-1234"}
BROWSER = {
    "name": "Tablet with wired headphones",
    "transducer": "circumaural",
    "fingerprint": {
        "browser": "Chrome",
        "system": "Android",
        "sample_rate": 48000,
        "channels": 2,
        "earphones": "HDA 200",
        "connection": "wired",
        "volume": "50 %",
    },
}


def ear(reference: Mapping[str, float], worse_db: float = 0.0) -> Callable[[float], float]:
    """The threshold of an ear at any frequency: the reference's nearest one, high ones moved.

    A shift at all frequencies alike could as well be the device's.
    """

    def threshold(frequency_hz: float) -> float:
        nearest = min(reference, key=lambda hz: abs(float(hz) - frequency_hz))
        return reference[nearest] + (worse_db if frequency_hz >= HIGH_HZ else 0.0)

    return threshold


class Clinic:
    """A signed-in program at the API of a running app."""

    def __init__(self, address: str, user: str = "bob") -> None:
        self._client = httpx.Client(base_url=address, timeout=300)
        self._headers = sign_in(self._client, user, address)

    def __enter__(self) -> "Clinic":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str) -> Any:
        return self._told(self._client.get(path))

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._told(self.ask(path, body))

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        """The answer to a request, whether it was refused or not."""
        return self._client.post(path, json=body or {}, headers=self._headers)

    def delete(self, path: str) -> None:
        self._told(self._client.delete(path, headers=self._headers))

    def look(self, path: str) -> httpx.Response:
        """The answer to a request for a page, whether it was refused or not."""
        return self._client.get(path)

    @staticmethod
    def _told(answer: httpx.Response) -> Any:
        assert answer.is_success, (answer.request.url.path, answer.text)
        return answer.json() if answer.content else None

    def person(self, name: str | None, code: str, *, references: tuple[str, ...] = ()) -> str:
        """A new person, with the same reference typed in for these ears."""
        born = {"birth_date": "1980-02-03", "sex": "female"}
        handle = self.post("/api/people", {"name": name, "code": code, **born})["id"]
        for side in references:
            reference = {"ear": side, "measured_on": "2024-05-06", "thresholds": REFERENCE}
            self.post(f"/api/people/{handle}/audiograms", {**reference, "source": "works doctor"})
        return str(handle)

    def begin(self, person: str, **plan: Any) -> Any:
        """A test, by default a screen of the right ear with an audiometer at hand."""
        wanted = {"kind": "screen", "ears": ["right"], "rule": "osha-sts", "practice": False}
        return self.post(f"/api/people/{person}/tests", {**wanted, **plan})

    def warm_up(self) -> None:
        """Let the engine be compiled now, for a minute, rather than under somebody's eyes."""
        self.post("/api/try", {"tones": 2})
        person = self.person(None, "warm", references=("right",))
        exam = self.begin(person)["exams"][0]["id"]
        self.answer(exam, ear(REFERENCE, worse_db=30))
        full = self.post(f"/api/exams/{exam}/continue")["id"]
        self.answer(full, ear(REFERENCE), most=2)
        self.post(f"/api/exams/{full}/finish")

    def answer(
        self,
        exam: str,
        hears: Callable[[float], float] | Mapping[str, Callable[[float], float]],
        most: int = 100,
    ) -> Any:
        """Answer as somebody with these thresholds would, until the test or `most` is over.

        With thresholds by ear, each tone by its own.
        """
        for _ in range(most):
            now = self.get(f"/api/exams/{exam}")
            tone = (now["play"] or {}).get("presentation")
            if now["state"] != "open" or tone is None:
                break
            threshold = hears[tone["ear"]] if isinstance(hears, Mapping) else hears
            heard = tone["level"] is not None and tone["level"] >= threshold(tone["frequency_hz"])
            self.post(f"/api/exams/{exam}/answer", {"trial": tone["trial"], "heard": heard})
        return self.get(f"/api/exams/{exam}")
