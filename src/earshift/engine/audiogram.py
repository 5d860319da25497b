"""The thresholds of one ear, as a clinic writes them down."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from earshift.engine import plots
from earshift.engine.checks import AUDIOMETER_DB_HL, finite, hertz
from earshift.engine.refusal import Refusal
from earshift.engine.tables import Row, frame, html

if TYPE_CHECKING:
    import polars
    from matplotlib.axes import Axes

DEFAULT_THRESHOLD_SD_DB = 5.0  # Schlauch & Carney simulate audiograms with 5 dB per threshold

Levels = Mapping[float, float] | Mapping[int, float]  # dB by Hz, as people write them down

COLUMNS: dict[str, type] = {
    "frequency_hz": float, "threshold_db_hl": float, "no_response": bool,
    "level_tried_db_hl": float,
}  # fmt: skip


@dataclass(frozen=True)
class Audiogram:
    """Thresholds of one ear, as a clinic writes them down: no trials, only results.

    Attributes:
        thresholds_db_hl: frequency in Hz to threshold in dB HL.
        sd_db: standard deviation of a threshold, in dB.
        method_offset_db: what the method reads above the 50 % point, in dB; it is taken off. A
            Hughson-Westlake audiogram in 5 dB steps reads about 2.5 dB high.
        no_response_db_hl: frequency in Hz to the loudest level in dB HL that was tried and not
            heard.

    Raises:
        Refusal: for levels or frequencies that no audiometer says (999 dB, kHz for Hz).

    Examples:
        >>> Audiogram({1000: 10, 4000: 35}, no_response_db_hl={8000: 90}).thresholds_db_hl[4000.0]
        35.0
    """

    thresholds_db_hl: Mapping[float, float]
    sd_db: float = DEFAULT_THRESHOLD_SD_DB
    method_offset_db: float = 0.0
    no_response_db_hl: Mapping[float, float] = field(default_factory=dict)

    if TYPE_CHECKING:  # whole numbers of Hz are taken

        def __init__(
            self,
            thresholds_db_hl: Levels,
            sd_db: float = DEFAULT_THRESHOLD_SD_DB,
            method_offset_db: float = 0.0,
            no_response_db_hl: Levels = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name in ("thresholds_db_hl", "no_response_db_hl"):
            given = getattr(self, name)
            if not isinstance(given, Mapping):
                raise Refusal(f"{name} must map frequency in Hz to dB HL", got=given)
            clean = {
                hertz(f, "a frequency of an audiogram"): finite(level, name)
                for f, level in given.items()
            }
            low, high = AUDIOMETER_DB_HL
            for f, level in clean.items():
                if not low <= level <= high:
                    raise Refusal(
                        f"a threshold lies from {low:g} to {high:g} dB HL, "
                        f"got {level:g} at {f:g} Hz",
                        advice="numbers such as 888 and 999 stand for something else: leave the "
                        "frequency out, or name the level tried in no_response_db_hl",
                    )
            object.__setattr__(self, name, dict(sorted(clean.items())))
        if not self.thresholds_db_hl and not self.no_response_db_hl:
            raise Refusal("an audiogram needs at least one threshold: this one is empty")
        both = self.thresholds_db_hl.keys() & self.no_response_db_hl.keys()
        if both:
            raise Refusal(f"{sorted(both)} Hz have both a threshold and no response")
        for name in ("sd_db", "method_offset_db"):
            object.__setattr__(self, name, finite(getattr(self, name), name))
        if not self.sd_db > 0:
            raise Refusal("sd_db must be positive", got=self.sd_db)

    def to_dict(self) -> dict[str, Any]:
        """As plain data.

        Returns:
            Plain values that JSON can hold; `from_dict` reads them back.
        """
        return {
            "thresholds_db_hl": [list(item) for item in self.thresholds_db_hl.items()],
            "sd_db": self.sd_db,
            "method_offset_db": self.method_offset_db,
            "no_response_db_hl": [list(item) for item in self.no_response_db_hl.items()],
        }

    def rows(self) -> list[Row]:
        """One plain row for each frequency: its threshold, or the level that was not heard.

        Returns:
            A list of dictionaries, lowest frequency first, all with the same columns.
        """
        tried = self.no_response_db_hl
        return [
            {
                "frequency_hz": f,
                "threshold_db_hl": self.thresholds_db_hl.get(f),
                "no_response": f in tried,
                "level_tried_db_hl": tried.get(f),
            }
            for f in sorted({*self.thresholds_db_hl, *tried})
        ]

    def to_frame(self) -> "polars.DataFrame":
        """The same as a polars frame, with a type for each column; needs the extra `study`.

        Returns:
            A `polars.DataFrame` with the columns of `rows`.

        Raises:
            Refusal: without the package polars.
        """
        return frame(self.rows(), COLUMNS)

    def plot(self, ax: "Axes | None" = None, *, ear: str | None = None) -> "Axes":
        """Draw the audiogram; gives the axes back.

        A red O for the right ear, a blue X for the left, an arrow where there was no response.

        Args:
            ax: matplotlib axes to draw on; by default new ones.
            ear: "right" or "left"; by default neutral symbols.

        Returns:
            The matplotlib axes that were drawn on.

        Raises:
            Refusal: for another ear, or axes that are none.
        """
        if ear not in plots.COLOURS:
            raise Refusal(f"ear must be 'right', 'left' or None, got {ear!r}")
        points = sorted({**self.thresholds_db_hl, **self.no_response_db_hl}.items())
        unheard = {k: "above" for k, (f, _) in enumerate(points) if f in self.no_response_db_hl}
        frequencies, levels = [f for f, _ in points], [level for _, level in points]
        label = f"{ear} ear" if ear else "threshold"
        return plots.audiogram(
            ax,
            [plots.Line(label, frequencies, levels, ear=ear, outside=unheard)],
            frequency=plots.Scale(
                "frequency (Hz)", min(500.0, *frequencies), max(8000.0, *frequencies), True
            ),
            level=plots.Scale("level (dB HL)", min(-10.0, *levels), max(100.0, *levels)),
        )

    def _repr_html_(self) -> str:
        return html("Audiogram", [f"SD of a threshold {self.sd_db:g} dB"], self.rows())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Audiogram":
        """An audiogram from `to_dict`'s data.

        Args:
            data: what `to_dict` gave.

        Returns:
            The audiogram that was written down.

        Raises:
            Refusal: for levels or frequencies that no audiometer says.
        """
        return cls(
            thresholds_db_hl=dict(data["thresholds_db_hl"]),
            sd_db=data["sd_db"],
            method_offset_db=data["method_offset_db"],
            no_response_db_hl=dict(data["no_response_db_hl"]),
        )
