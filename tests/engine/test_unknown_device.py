"""A screen with a device that may play otherwise than the reference's: what its verdict says."""

import math

import earshift as es

REFERENCE = {500: 10, 1000: 10, 2000: 15, 3000: 20, 4000: 25, 6000: 30, 8000: 30}


def test_unchanged_by_less_than_its_own_factor_says_what_was_judged() -> None:
    """The ear's own factor stays small, as the device might hide a shift: the verdict says so."""
    audiogram = es.Audiogram(REFERENCE)
    screen = es.Screen(
        audiogram, rule="osha-sts", settings=es.RuleSettings(device_offset_sd_db=6.0), seed=1
    )
    person = es.Listener(REFERENCE, spread_db=3.0, seed=2)
    while not screen.done:
        tone = screen.ask()
        screen.tell(tone, heard=person(tone))
    verdict = screen.verdict()
    assert verdict.decision == "unchanged"
    assert abs(verdict.log_bf) < math.log(100.0)
    assert any(
        note.startswith("Unchanged is said of the levels as measured") for note in verdict.notes
    )
