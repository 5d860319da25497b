"""How a result was worked out: the record behind it, and the engine's settings in words."""

from earshift.records import ExamBundle, ResultRecord
from earshift.report.text import (
    LONGEST_TEXT,
    Data,
    counted,
    mapping,
    moment,
    number,
    numbers,
    one_line,
    percent,
    rows_of,
    shortened,
    unbroken,
)
from earshift.report.words import Words


def worked_out(
    bundle: ExamBundle, result: ResultRecord | None, kind: str, zone: str, words: Words
) -> tuple[str, ...]:
    """Paragraphs about one exam: where it is stored, and by which settings it was judged."""
    exam = bundle.exam
    if result is None:
        line = words.audiogram_line if exam.kind == "audiogram" else words.exam_line
        seed = exam.design.get("seed")
        return (line.format(kind=kind, id=exam.id, version=exam.engine_version, seed=seed),)
    settings = result.settings
    chosen = mapping(settings.get("settings")) or mapping(settings.get("protocol"))
    record = " ".join(
        (
            words.result_line.format(
                id=result.id,
                moment=moment(result.at, zone, words),
                author=one_line(result.author, words),
                version=result.engine_version,
                seed=settings.get("seed"),
            ),
            words.hash_line.format(digest=result.trials_sha256[:12]),
        )
    )
    judged = " ".join(_settings_lines(settings, chosen, words))
    sizes = numbers(mapping(result.shown.get("verdict")).get("effective_size"))
    behind = ", ".join(f"{size:.0f}" for size in sizes)
    parts = (
        record,
        judged,
        words.effective_size.format(sizes=behind) if sizes else "",
        " ".join(_limit_lines(mapping(settings.get("limits")), exam.unit, words)),
    )
    return tuple(shortened(unbroken(part), LONGEST_TEXT, words) for part in parts if part)


def _settings_lines(settings: Data, chosen: Data, words: Words) -> list[str]:
    """The settings as sentences where this version knows them, and else as they were stored."""
    factor, prevalence = number(chosen.get("bayes_factor")), number(chosen.get("prevalence"))
    precision = number(settings.get("precision_db"))
    if factor is not None and prevalence is not None:
        tones = counted(settings.get("max_tones"), words)
        lines = [
            words.decided_at.format(
                factor=f"{factor:g}", prevalence=percent(prevalence, words), tones=tones
            )
        ]
        offset = number(chosen.get("device_offset_sd_db"))
        return [*lines, words.device_offset.format(sd=f"{offset:g}")] if offset else lines
    if precision is not None and not chosen:
        tones = counted(settings.get("max_tones"), words)
        return [words.measured_until.format(precision=f"{precision:g}", tones=tones)]
    return [words.settings_line.format(settings=_listed(chosen))] if chosen else []


def _limit_lines(limits: Data, unit: str, words: Words) -> list[str]:
    """How loud a tone might have been, as sentences."""
    if not limits:
        return [words.no_limits]
    known = {name: number(limits.get(name)) for name in words.limits}
    lines = [
        text.format(value=f"{known[name]:g}", unit=unit)
        for name, text in words.limits.items()
        if known[name] is not None
    ]
    if limits.get("device"):
        lines.append(words.limits_device)
    rest = {
        name: value
        for name, value in limits.items()
        if name not in (*words.limits, "device", "near_octaves") and not rows_of(value)
    }
    return [*lines, words.limits_line.format(limits=_listed(rest))] if _listed(rest) else lines


def _listed(settings: Data) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items() if value is not None)
