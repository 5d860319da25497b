"""What a screen says: of one ear, and of the person."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from earshift.engine import plots
from earshift.engine.amount import Amount, in_percent
from earshift.engine.refusal import Refusal
from earshift.engine.rules import rule_title
from earshift.engine.tables import Row, filled, frame, html
from earshift.engine.values import EARS

if TYPE_CHECKING:
    import polars
    from matplotlib.axes import Axes

FAIR_PRESSES, POOR_PRESSES = 2, 4  # outside every response window: from so many on
NOT_ASSESSED = "not assessed"  # a reliability
NOT_CONVERGED = "The calculation did not converge fully: treat the numbers with caution."
NOTCH = "notch"  # the name of the question about a notch

NOTCH_WORDS = (  # what is asked, yes, and no
    "there is a notch around 3-6 kHz", "a notch around 3-6 kHz", "no notch around 3-6 kHz",
)  # fmt: skip

UNDECIDED = {"inconclusive": "not decided"}  # else the decision's own words

REASONS = {
    "evidence": "The answers are not enough to decide.",
    "not heard at every frequency": "A tone still has to be heard at every frequency that counts.",
    "listener in doubt": "It is doubtful whether the answers follow the tones.",
    "too few answers": "There are too few answers to decide.",
    "not reliable": "The answers are not reliable.",
    "computation": "The calculation did not converge.",
}
# Reasons to believe no number.
NO_NUMBERS = ("not reliable", "listener in doubt", "too few answers", "computation")
NEXT_STEPS = {
    "more tones": "Next step: more tones.",
    "better reference": "Next step: a better reference, such as a full exam.",
    "retest": "Next step: instruct the listener again and repeat the test.",
}


@dataclass(frozen=True)
class Shift:
    """Change of one threshold in dB, worse is positive.

    Under a rule, of the whole posterior; without one, under the hypothesis that the ear is another
    (if it is the same the shift is zero).

    Attributes:
        frequency_hz: where, in Hz.
        shift_db: its median in dB.
        low_db: lower end of its 95 % interval, in dB.
        high_db: upper end of its 95 % interval, in dB.
        censored: the old or the new threshold lies outside the domain's levels, so that the size
            is a guess.
    """

    frequency_hz: float
    shift_db: float
    low_db: float
    high_db: float
    censored: bool

    # The names of a `PlaceShift`, so that a program can read either.
    @property
    def place(self) -> tuple[tuple[str, float], ...]:
        """Its frequency by name: (("frequency_hz", 1000.0),)."""
        return (("frequency_hz", self.frequency_hz),)

    @property
    def shift(self) -> float:
        """The same as `shift_db`."""
        return self.shift_db

    @property
    def low(self) -> float:
        """The same as `low_db`."""
        return self.low_db

    @property
    def high(self) -> float:
        """The same as `high_db`."""
        return self.high_db


@dataclass(frozen=True)
class PlaceShift:
    """A shift on other axes than a tone's, in the intensity's unit; in octaves on a logarithmic
    intensity axis.

    Attributes:
        place: its location by the axes' names.
        shift: its median.
        low: lower end of its 95 % interval.
        high: upper end of its 95 % interval.
        censored: as for a tone's.
        unit: of the numbers.
    """

    place: tuple[tuple[str, float], ...]
    shift: float
    low: float
    high: float
    censored: bool
    unit: str = ""


OF_A_VERDICT: dict[str, type] = {
    "ear": str, "rule": str, "protocol": str, "decision": str, "p_changed": float, "tones": int,
}  # fmt: skip
OF_A_SHIFT: dict[str, type] = {
    "frequency_hz": float, "shift_db": float, "low_db": float, "high_db": float, "censored": bool,
}  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """What a screen says now of one ear.

    Attributes:
        decision: "changed", "unchanged", "inconclusive" or "not determinable"; of a notch "notch"
            or "no notch".
        p_changed: probability of change; under a rule, that it is met; of a notch, that there is
            one.
        log_bf: log evidence of changed over unchanged, in nats.
        tones: how many were answered.
        shifts: the change of each threshold.
        converged: whether the numerical fit settled.
        protocol: name of the settings, without a rule; or "notch".
        rule: name of the rule, if one was asked about.
        catch_trials: how many silent trials there were.
        false_alarms: how many of them were reported as heard.
        reliability: "good", "fair" or "poor"; "not assessed" where nothing speaks against the
            answers and no silent trial was given.
        evidence_hz: under a rule, the frequencies in Hz that carry the decision.
        unverified: a rule that was not checked against its source says so here.
        not_determinable_hz: frequencies in Hz at which nothing can be said.
        notes: sentences that belong to every output.
        reason: why nothing was decided: "evidence", "not heard at every frequency", "listener in
            doubt", "not reliable" or "computation"; empty where something was.
        next_step: what would help most then: "more tones", "better reference" or "retest".
        attention: probability that the listener was attentive at the last tone; of a rule, limit
            or notch.
        p_not_listening: probability that the answers have nothing to do with the tones.
        effective_size: how many persons the numbers rest on, on each side of the question.
        amount: of a rule, limit or notch: its own quantity with an interval.

    Raises:
        Refusal: of `to_frame`, without the package polars.

    Examples:
        >>> import earshift as es
        >>> screen = es.Screen(es.Audiogram({1000: 10, 2000: 10, 4000: 20}))
        >>> screen.tell(es.Tone(2000, 50), heard=False)
        >>> screen.verdict([2000]).tones
        1
    """

    decision: str
    p_changed: float
    log_bf: float
    tones: int
    shifts: tuple[Shift, ...]
    converged: bool
    protocol: str | None
    rule: str | None = None
    catch_trials: int = 0
    false_alarms: int = 0
    reliability: str = "good"
    evidence_hz: tuple[float, ...] = ()
    unverified: str | None = None
    not_determinable_hz: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    reason: str = ""
    next_step: str = ""
    attention: float | None = None
    p_not_listening: float | None = None
    effective_size: tuple[float, ...] = ()
    amount: Amount | None = None

    if TYPE_CHECKING:  # of a screen of both ears, whose verdict is a `PersonVerdict`

        @property
        def right(self) -> "Verdict": ...

        @property
        def left(self) -> "Verdict": ...

    def to_dict(self) -> dict[str, Any]:
        """As plain data.

        Returns:
            Plain values that JSON can hold.
        """
        return asdict(self)

    def rows(self) -> list[Row]:
        """One plain row for each frequency's shift, each with the decision.

        A verdict without shifts has one row, with nothing in their columns.

        Returns:
            A list of dictionaries with plain values.
        """
        return _rows({None: self})

    def to_frame(self) -> "polars.DataFrame":
        """The same as a polars frame, with a type for each column; needs the extra `study`.

        Returns:
            A `polars.DataFrame` with the columns of `rows`.

        Raises:
            Refusal: without the package polars.
        """
        return frame(self.rows(), _columns([self]))

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the shift at each frequency with its 95 % interval.

        Args:
            ax: matplotlib axes to draw on; by default new ones.

        Returns:
            The matplotlib axes that were drawn on.

        Raises:
            Refusal: for a verdict without shifts, or with shifts along several axes.
        """
        return _plot({None: self}, ax)

    def _repr_html_(self) -> str:
        return html(self.decision.capitalize(), [str(self), _trusted(self)], _shift_rows(self))

    def __str__(self) -> str:
        return self.said()

    def __repr__(self) -> str:
        asked = self.rule or self.protocol
        unit = "tones" if self._of_tones else "trials"
        return (
            f"<Verdict: {self.decision} ({asked}), P = {self.p_changed:.3g}, {self.tones} {unit}>"
        )

    def said(self, ear: str | None = None, since: str | None = None) -> str:
        """The verdict in one sentence, and what belongs behind it.

        Args:
            ear: as of `sentence`.
            since: as of `sentence`.

        Returns:
            One or more sentences.
        """
        return " ".join((self.sentence(ear, since), *self.remarks))

    def sentence(self, ear: str | None = None, since: str | None = None) -> str:
        """The verdict in one sentence, with the rule's own number, and how sure it is.

        With an ear its name stands first, else what is asked.

        Args:
            ear: the tested one, "right" or "left".
            since: the year or the day of the reference.

        Returns:
            One sentence.

        Examples:
            >>> import earshift as es
            >>> found = {"decision": "changed", "p_changed": 0.993, "log_bf": 5.0, "tones": 7}
            >>> verdict = es.Verdict(**found, shifts=(), converged=True, protocol="best")
            >>> verdict.sentence(ear="right", since="2020")
            'Right ear: hearing has changed since 2020. Probability 99.3 %, 7 tones.'
        """
        found, answer = self._found(since), self._answer(since)
        if ear is None:
            said = f"{answer}: {found}" if found else answer
            return f"{said[0].upper()}{said[1:]}{self._how_sure}"
        if found and self.decision == "inconclusive":
            found = f"not decided; {found}"
        elif found and self.protocol == NOTCH:
            found = f"{answer}; {found}"
        return f"{ear.capitalize()} ear: {found or answer}{self._how_sure}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """What belongs behind the sentence: why nothing was decided, what would help, notes."""
        doubt = "" if self.converged else NOT_CONVERGED
        why = REASONS.get(self.reason, ""), NEXT_STEPS.get(self.next_step, "")
        return tuple(filter(None, (doubt, *why, self.unverified, *self.notes)))

    @property
    def _of_tones(self) -> bool:
        """On other axes than a tone's there is nothing to hear."""
        return not any(isinstance(shift, PlaceShift) for shift in self.shifts)

    def _found(self, since: str | None) -> str:
        """How much there is of what the rule speaks of; nothing where that would pass for news."""
        if self.amount is None or self.decision == "not determinable":
            return ""
        if self.reason in NO_NUMBERS:
            return ""
        return self.amount.words(_when(since) if since else "the reference")

    def _answer(self, since: str | None) -> str:
        """Yes, no or neither to what was asked, in words."""
        if self.protocol == NOTCH:
            asked, yes, no = NOTCH_WORDS
        elif self.rule is not None:
            rule = f"the {rule_title(self.rule)} rule"
            asked, yes, no = f"{rule} is met", f"{rule} is met", f"{rule} is not met"
        else:
            who = "hearing has" if self._of_tones else "answers have"
            then = f"since {since}" if since else "from the reference"
            asked = yes = f"{who} changed {then}"
            no = f"no change {then}"
        return {
            "changed": yes,
            "notch": yes,
            "unchanged": no,
            "no notch": no,
            "inconclusive": f"not decided whether {asked}",
            "not determinable": f"whether {asked} is not determinable",
        }[self.decision]

    @property
    def _in_ear(self) -> tuple[str, str]:
        """What was asked and what was found of it, as a sentence of both ears says them."""
        word = "found" if self.rule is None else "met"
        found = {
            "changed": f"{word} in",
            "notch": f"{word} in",
            "unchanged": f"not {word} in",
            "no notch": f"not {word} in",
        }.get(self.decision, f"{UNDECIDED.get(self.decision, self.decision)} for")
        if self.protocol == NOTCH:
            return "a notch around 3-6 kHz was", found
        return (
            "a change was" if self.rule is None else f"the {rule_title(self.rule)} rule is",
            found,
        )

    @property
    def _how_sure(self) -> str:
        unit = "tone" if self._of_tones else "trial"
        count = f"{self.tones} {unit}{'s' if self.tones != 1 else ''}"
        if self.decision == "not determinable" or self.reason in NO_NUMBERS:
            return f" ({count})."  # a probability would pass for an answer
        p = in_percent(self.p_changed)
        if self.decision in ("changed", "notch"):
            return f". Probability {p}, {count}."
        what = "of change" if self.rule is None else "that the rule is met"
        what = "of a notch" if self.protocol == NOTCH else what
        return f". Probability {what}: {p}, {count}."


@dataclass(frozen=True, init=False)
class PersonVerdict(Verdict):
    """What a screen of both ears says now: of the person, and of either ear.

    One ear suffices for "changed"; "unchanged" needs both. What is not said below, `p_changed`
    among it, is that of the ear which more likely has changed.

    Attributes:
        decision: of the person: "changed", "unchanged", "inconclusive" or "not determinable".
        tones: how many were answered, of both ears.
        right: what the screen says of the right ear.
        left: what the screen says of the left ear.

    Raises:
        Refusal: of `to_frame`, without the package polars.

    Examples:
        >>> import earshift as es
        >>> ear = es.Audiogram({1000: 10, 2000: 10, 4000: 20})
        >>> screen = es.Screen({"right": ear, "left": ear}, ears="both")
        >>> screen.verdict([2000]).left.decision
        'inconclusive'
    """

    right: Verdict = field(kw_only=True)
    left: Verdict = field(kw_only=True)

    def __init__(self, decision: str, tones: int, right: Verdict, left: Verdict) -> None:
        leading = max(right, left, key=lambda one: one.p_changed)
        self.__dict__.update(vars(leading))
        self.__dict__.update(decision=decision, tones=tones, right=right, left=left)

    def to_dict(self) -> dict[str, Any]:
        """As plain data: of the person, and of either ear.

        Returns:
            Plain values that JSON can hold.
        """
        ears = {ear: getattr(self, ear).to_dict() for ear in EARS}
        return {"decision": self.decision, "tones": self.tones, **ears}

    def rows(self) -> list[Row]:
        """One plain row for each ear and frequency, each with that ear's decision.

        Returns:
            A list of dictionaries with plain values.
        """
        return _rows({"right": self.right, "left": self.left})

    def to_frame(self) -> "polars.DataFrame":
        """The same as a polars frame, with a type for each column; needs the extra `study`.

        Returns:
            A `polars.DataFrame` with the columns of `rows`.

        Raises:
            Refusal: without the package polars.
        """
        return frame(self.rows(), _columns([self.right, self.left]))

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw both ears' shifts with their 95 % intervals on `ax`, or on new axes.

        Returns:
            The matplotlib axes that were drawn on.

        Raises:
            Refusal: for a verdict without shifts.
        """
        return _plot({"right": self.right, "left": self.left}, ax)

    def _repr_html_(self) -> str:
        said = [self.said(ear) for ear in EARS]
        shifts = [{"ear": ear, **row} for ear in EARS for row in _shift_rows(getattr(self, ear))]
        return html(f"{self.decision.capitalize()} (person)", said, shifts)

    def __repr__(self) -> str:
        return f"<PersonVerdict: {self.decision}, right {self.right!r}, left {self.left!r}>"

    def __str__(self) -> str:
        return f"{self.decision.capitalize()}, after {self.tones} tones.\n{self.said()}"

    @property
    def of_person(self) -> str:
        """What was found in which ear, in one sentence."""
        asked, right = self.right._in_ear
        left = self.left._in_ear[1]
        said = f"{right} the right ear, {left} the left ear"
        if right == left:
            yes = self.right.decision in ("changed", "notch")
            said = f"{right} {'both ears' if yes else 'either ear'}"
        return f"Person: {asked} {said} ({self.tones} tones in all)."

    def sentence(self, ear: str | None = None, since: str | None = None) -> str:
        """Both ears', or that of one `ear`; `since` is the year or the day of the reference.

        Returns:
            A line for each ear.
        """
        ears = EARS if ear is None else (ear,)
        return "\n".join(getattr(self, one).sentence(one, since) for one in ears)

    def said(self, ear: str | None = None, since: str | None = None) -> str:
        """The same of both or one `ear` (`since`: see `sentence`), with what belongs behind it.

        Returns:
            A line for each ear.
        """
        ears = EARS if ear is None else (ear,)
        return "\n".join(getattr(self, one).said(one, since) for one in ears)


def _when(since: str) -> str:
    """A year or a day, as it stands in a sentence."""
    return f"in {since}" if len(since) == len("2021") else f"on {since}"


def _shift_rows(verdict: Verdict) -> list[Row]:
    """The shifts as plain values, their places by the axes' names."""
    rows = [asdict(shift) for shift in verdict.shifts]
    return [{**dict(row.pop("place", ())), **row} for row in rows]


def _columns(verdicts: Sequence[Verdict]) -> dict[str, type]:
    found = [shift for verdict in verdicts for shift in verdict.shifts]
    if found and isinstance(found[0], PlaceShift):
        names = (*(name for name, _ in found[0].place), "shift", "low", "high")
        return {**OF_A_VERDICT, **dict.fromkeys(names, float), "censored": bool, "unit": str}
    return {**OF_A_VERDICT, **OF_A_SHIFT}


def _rows(verdicts: dict[str | None, Verdict]) -> list[Row]:
    columns = _columns(list(verdicts.values()))
    return [
        filled({**asdict(verdict), "ear": ear, **row}, columns)
        for ear, verdict in verdicts.items()
        for row in _shift_rows(verdict) or [{}]
    ]


def _trusted(verdict: Verdict) -> str:
    """How far the answers can be trusted, as a sentence."""
    silence = "" if verdict.catch_trials else "; no silent trial was given"
    return f"Reliability {verdict.reliability}{silence}."


def _plot(verdicts: dict[str | None, Verdict], ax: "Axes | None") -> "Axes":
    if not any(verdict.shifts for verdict in verdicts.values()):
        raise Refusal(
            "this verdict has no shifts to draw: there was no reference to compare with",
            advice="screen.plot() draws the thresholds of now",
        )
    lines = []
    tones = True
    for ear, verdict in verdicts.items():
        rows = _shift_rows(verdict)
        tones = "frequency_hz" in rows[0]
        if not tones and len(verdict.shifts[0].place) > 1:
            raise Refusal(
                "shifts along several axes have no one picture",
                advice="take rows() and draw them as you like",
            )
        where = next(iter(rows[0]))
        where = "" if where == "shift" else where  # of one function alone: it has no place
        in_db = "_db" if tones else ""
        lines.append(
            plots.Line(
                f"{ear} ear, shift (95 %)" if ear else "shift (95 %)",
                [row[where] if where else 0.0 for row in rows],
                [row[f"shift{in_db}"] for row in rows],
                [row[f"low{in_db}"] for row in rows],
                [row[f"high{in_db}"] for row in rows],
                ear,
                outside={k: "above" for k, row in enumerate(rows) if row["censored"]},
            )
        )
    ends = [x for line in lines for x in line.x]
    in_unit = f"{unit}, " if not tones and (unit := rows[0]["unit"]) else ""
    label = "frequency (Hz)" if tones else where.replace("_", " ")
    logarithmic = tones or (min(ends) > 0 and max(ends) > 10 * min(ends))
    return plots.shifts(
        plots.on(ax, 5.0, 4.0),
        lines,
        place=plots.Scale(label, min(ends), max(ends), logarithmic),
        label="shift (dB, worse is down)" if tones else f"shift ({in_unit}harder is up)",
        of_tones=tones,
        unknown=sorted({f for v in verdicts.values() for f in v.not_determinable_hz}),
    )


def reliability(catch_responses: Sequence[bool], presses: int, tones: int) -> str:
    """good, fair, poor or not assessed: how far answers can be trusted, by those to silence.

    Poor when all silent trials were "heard", or two or more and over a third of them, and when the
    button was pressed between the tones more often than every other time. Fair when any silent
    trial was "heard", or at some presses. Not assessed where there was no silent trial to tell.
    """
    alarms, silent = sum(catch_responses), len(catch_responses)
    if alarms and (alarms == silent or (alarms >= 2 and alarms > silent / 3)):
        return "poor"
    if presses >= POOR_PRESSES and presses > (tones + silent) / 2:
        return "poor"
    if alarms or presses >= FAIR_PRESSES:
        return "fair"
    return "good" if silent else NOT_ASSESSED
