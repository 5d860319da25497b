"""What a technician looks at and asks before a test, by name: the browser's form and the command
line take the same. What an answer says against a result is said here for all who show one.
"""

from collections.abc import Collection, Mapping
from typing import Any

from earshift.clinic.site import site_settings
from earshift.engine.refusal import Refusal
from earshift.engine.values import EARS
from earshift.report.content import Caution
from earshift.store import Store

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
QUIET = "baseline_quiet_hours"  # the site's setting
USUAL_QUIET = 24  # hours, for a site that asks for none: what the checklist itself asks about

OTOSCOPY_CAUTIONS = {
    "wax": "earwax can raise thresholds. Retest after it is removed.",
    "collapsing canal": "an ear canal that collapses under the earphone can raise thresholds. "
    "Retest with insert earphones.",
    "other": "otoscopy was not normal. Have the ear examined before you rely on the result.",
}
COLD = "A cold or an earache can raise thresholds. Retest when it is over."
NOISE = "Loud noise in the last 24 hours can raise thresholds for a while."
SOON = (
    "Less than {quiet} hours since noise at work: it can raise thresholds for a while. Do not use "
    "this test as a baseline."
)
RETEST = "Retest after {quiet} hours without noise."
AIDS = "Hearing aids must be removed before a test. Retest without them."
ROOM = "A noisy room hides soft tones, especially low ones. Retest in a quiet one."


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


def quiet_hours(store: Store) -> int:
    """How long it has to have been quiet before a baseline, as the site has it."""
    return int(site_settings(store)[QUIET].value)


def too_soon(answers: Mapping[str, Any], quiet: int) -> bool:
    """Whether there was noise at work within the hours that have to be quiet."""
    hours = answers.get(HOURS)
    return isinstance(hours, int | float) and hours < quiet


def cautions(
    answers: Mapping[str, Any], quiet: int, ears: Collection[str] = EARS
) -> tuple[Caution, ...]:
    """What a checklist says against a result of these ears, and what to do about it."""
    found = []
    for ear in EARS:
        text = OTOSCOPY_CAUTIONS.get(str(answers.get(f"otoscopy_{ear}")))
        if text is not None and ear in ears:
            found.append(Caution(f"{ear.capitalize()} ear: {text}", ear))
    said = [
        COLD if answers.get("cold_or_earache") is True else "",
        _noise(answers, quiet),
        AIDS if answers.get("hearing_aids_out") is False else "",
        ROOM if answers.get("room_noise") == "noisy" else "",
    ]
    return (*found, *(Caution(text) for text in said if text))


def _noise(answers: Mapping[str, Any], quiet: int) -> str:
    soon = too_soon(answers, quiet)
    if not soon and answers.get("loud_noise_24h") is not True:
        return ""
    return f"{SOON if soon else NOISE} {RETEST}".format(quiet=quiet or USUAL_QUIET)
