"""What a technician looks at and asks before a test, by name: the browser's form and the command
line take the same.
"""

from collections.abc import Mapping
from typing import Any

from earshift.engine.refusal import Refusal

OTOSCOPY = ("normal", "wax", "collapsing canal", "other")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "otoscopy_right": OTOSCOPY,
    "otoscopy_left": OTOSCOPY,
    "better_ear": ("right", "left", "same", "unknown"),
    "room_noise": ("quiet", "noisy", "measured ok", "unknown"),
}
YES_OR_NO = ("cold_or_earache", "loud_noise_24h", "tinnitus", "hearing_aids_out")
HOURS = "hours_since_noise"
WORDS = ("protector", "examiner_certificate", "remarks")
NAMES = (*CHOICES, *YES_OR_NO, HOURS, *WORDS)
MOST_HOURS, MOST_LETTERS = 100_000.0, 4000


def checklist(answers: Mapping[str, str]) -> dict[str, Any]:
    """Typed answers as a visit keeps them."""
    return {name: _answer(name, text.strip()) for name, text in answers.items()}


def _answer(name: str, text: str) -> Any:
    if name in CHOICES:
        if text not in CHOICES[name]:
            raise Refusal(f"{name} must be one of {', '.join(CHOICES[name])}", got=text)
        return text
    if name in YES_OR_NO:
        if text.casefold() not in ("yes", "no"):
            raise Refusal(f"{name} must be yes or no", got=text)
        return text.casefold() == "yes"
    if name == HOURS:
        try:
            hours = float(text)
        except ValueError:
            hours = -1.0
        if not 0 <= hours <= MOST_HOURS:
            raise Refusal(f"{name} must be a number of hours", got=text)
        return hours
    if name not in WORDS:
        raise Refusal(f"the checklist has {', '.join(NAMES)}", got=name)
    if len(text) > MOST_LETTERS:
        raise Refusal(f"{name} may have {MOST_LETTERS} letters", got=len(text))
    return text
