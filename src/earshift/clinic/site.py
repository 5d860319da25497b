"""What a site settles for itself: its name, intervals, windows, quiet hours; with their source."""

from dataclasses import dataclass
from datetime import datetime

from earshift.engine.refusal import Refusal
from earshift.report.content import Letterhead
from earshift.store import Store

OWN_CHOICE = "earshift's own choice; no regulation names one"


@dataclass(frozen=True)
class Setting:
    """Something that a site may settle: `value` is what counts until it does."""

    name: str
    text: str
    value: int | bool | str
    unit: str
    """days or hours; empty for yes or no, and for text."""
    source: str
    lowest: int = 1
    highest: int = 3650
    """Of a number; of a text its longest."""


SETTINGS = (
    Setting(
        "site_name",
        "The site's name, at the head of every report",
        "",
        "",
        OWN_CHOICE,
        lowest=0,
        highest=120,
    ),
    Setting(
        "site_address",
        "The site's address, at the head of every report",
        "",
        "",
        OWN_CHOICE,
        lowest=0,
        highest=200,
    ),
    Setting(
        "test_interval_days",
        "A test is due this long after the last one of an ear",
        365,
        "days",
        "29 CFR 1910.95(g)(6): at least annually",
    ),
    Setting(
        "screen_keeps_interval",
        "A finished screen counts as a test for this interval. OSHA's annual audiogram has "
        "thresholds at 500, 1000, 2000, 3000, 4000 and 6000 Hz, which a screen has not",
        False,
        "",
        "29 CFR 1910.95(h)(1)",
    ),
    Setting(
        "notice_days",
        "Tests are listed this long before they are due",
        30,
        "days",
        OWN_CHOICE,
        lowest=0,
        highest=365,
    ),
    Setting(
        "baseline_within_days",
        "The first full audiogram is due this long after somebody was hired",
        180,
        "days",
        "29 CFR 1910.95(g)(5): within 6 months of the first exposure (1 year with mobile vans)",
    ),
    Setting(
        "baseline_quiet_hours",
        "Hours without workplace noise before a baseline; hearing protectors may take their place",
        14,
        "hours",
        "29 CFR 1910.95(g)(5)",
        lowest=0,
        highest=168,
    ),
    Setting(
        "retest_days",
        "After a screen that found a change, the full audiogram is due within this time",
        30,
        "days",
        "29 CFR 1904.10(b)(4): a retest within 30 days",
        highest=365,
    ),
    Setting(
        "inconclusive_retest_days",
        "After a screen that decided nothing, the retest is due within this time",
        30,
        "days",
        OWN_CHOICE,
        highest=365,
    ),
    Setting(
        "review_days",
        "After a test that found a change, a reviewer signs or closes it within this time",
        7,
        "days",
        "29 CFR 1904.10(b)(4): a shift that the retest confirms is recorded within 7 days",
        highest=365,
    ),
    Setting(
        "letter_days",
        "After a standard threshold shift was signed, the person is told in writing within this "
        "time",
        21,
        "days",
        "29 CFR 1910.95(g)(8)(i): in writing within 21 days of the determination",
        highest=365,
    ),
    Setting(
        "retention_days",
        "Records are kept this long after somebody has left. OSHA asks for as long as they are "
        "employed; local law may ask for more. Nothing is deleted automatically",
        0,
        "days",
        "29 CFR 1910.95(m)(3)(ii): audiometric test records for the duration of employment",
        lowest=0,
        highest=36500,
    ),
    Setting(
        "age_correction",
        "Standard threshold shifts are corrected for age by Appendix F, at 2000, 3000 and 4000 Hz. "
        "The 25 dB of the 300 log never are. NIOSH advises against correcting anybody for age",
        False,
        "",
        "29 CFR 1910.95(g)(10)(ii) allows it; the table is that of 30 CFR 62, which is the same",
    ),
    Setting(
        "admin_second_factor",
        "Administrators need a second factor: who has none sets one up at the next sign-in",
        False,
        "",
        OWN_CHOICE,
    ),
)
BY_NAME = {one.name: one for one in SETTINGS}


@dataclass(frozen=True)
class Settled:
    """A setting as it counts now, and who chose it; nobody, if it is as delivered."""

    setting: Setting
    value: int | bool | str
    author: str | None = None
    at: datetime | None = None
    reason: str | None = None


def site_settings(store: Store) -> dict[str, Settled]:
    """All settings as they count now, by name."""
    chosen = store.site_settings()
    found = {}
    for setting in SETTINGS:
        one = chosen.get(setting.name)
        found[setting.name] = (
            Settled(setting, setting.value)
            if one is None
            else Settled(setting, one.value, one.author, one.at, one.reason)
        )
    return found


def change_setting(
    store: Store, name: str, value: int | bool | str, *, author: str, reason: str
) -> Settled:
    """Settle something anew, with a reason; what counted before stays on record."""
    setting = BY_NAME.get(name)
    if setting is None:
        raise Refusal(f"a setting is one of {', '.join(BY_NAME)}", got=name)
    if not reason.strip():
        raise Refusal("changing a setting needs a reason")
    checked = _checked(setting, value)
    if checked == site_settings(store)[name].value:
        raise Refusal(f"{name} is {_as_typed(checked)} already")
    store.set_site_setting(name, checked, author=author, reason=reason)
    if name == "age_correction":  # what was found of everybody may be another thing now
        store.mark_everybody()
    return site_settings(store)[name]


def letterhead(store: Store) -> Letterhead:
    """The site as the head of a report names it; nothing where nobody has settled it."""
    settled = site_settings(store)
    return Letterhead(str(settled["site_name"].value), str(settled["site_address"].value))


def _as_typed(value: int | bool | str) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _checked(setting: Setting, value: int | bool | str) -> int | bool | str:
    if isinstance(setting.value, str):
        said = " ".join(value.split()) if isinstance(value, str) else None
        if said is None or len(said) > setting.highest or not said.isprintable():
            raise Refusal(f"{setting.name} is a text of up to {setting.highest} letters", got=value)
        return said
    if isinstance(setting.value, bool):
        typed = {"yes": True, "no": False}
        chosen = typed.get(value.strip().casefold()) if isinstance(value, str) else value
        if not isinstance(chosen, bool):
            raise Refusal(f"{setting.name} is yes or no", got=value)
        return chosen
    text = str(value).strip()
    whole = not isinstance(value, bool) and text.isascii() and text.isdigit() and len(text) < 6
    if not whole or not setting.lowest <= int(text) <= setting.highest:
        raise Refusal(
            f"{setting.name} is a whole number of {setting.unit} from {setting.lowest} to "
            f"{setting.highest}",
            got=value,
        )
    return int(text)
