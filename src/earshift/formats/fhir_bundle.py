"""Visits as a FHIR R4 bundle: thresholds, screening results, and a report of each visit.

Thresholds that were measured go into a pure-tone panel, one per ear: those of imported audiograms
and of full exams that were completed. What a screen estimates on its way to a verdict never does:
a screen is an Observation under our own code, with the probability as a component, derived from the
reference. There is no UCUM unit for dB HL: the unit is dB, and the texts say dB HL.
"""

import json
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from earshift import __version__
from earshift.devices import calibration
from earshift.engine.audiogram import Audiogram
from earshift.engine.rules import rule_title
from earshift.engine.values import EARS
from earshift.formats.fhir import LOCAL, TEST_DATA, UCUM, Json, codes, threshold_code
from earshift.formats.files import whole_file
from earshift.records import (
    ExamBundle,
    ExamRecord,
    Person,
    ResultRecord,
    VisitBundle,
    measured_at,
    visit_day,
)

CONFIDENTIALITY_OF_TESTS = "http://terminology.hl7.org/CodeSystem/v3-ActReason"
INTERPRETATIONS = "http://terminology.hl7.org/CodeSystem/v3-ObservationInterpretation"
INTERPRETATION = {"changed": "POS", "unchanged": "NEG", "inconclusive": "IND"}
CATEGORY = {
    "coding": [
        {
            "system": "http://terminology.hl7.org/CodeSystem/observation-category",
            "code": "exam",
        }
    ]
}
GENDERS = {"male": "male", "female": "female", "other": "other"}
NOT_DIAGNOSTIC = "Screening result, not a diagnostic audiogram."


def write(visits: Iterable[VisitBundle], path: Path, *, identity: bool = True) -> int:
    """Write the visits as one Bundle of type collection; how many visits it holds."""
    count = 0
    with whole_file(path) as file:
        head = {
            "resourceType": "Bundle",
            "type": "collection",
            "timestamp": _time(datetime.now(UTC)),
        }
        file.write(json.dumps(head)[:-1])
        bundle = _Bundle(identity)
        before = ', "entry": [\n'  # an empty list would be no FHIR
        for visit in visits:
            for entry in bundle.entries(visit):
                file.write(before + json.dumps(entry, allow_nan=False))
                before = ",\n"
            count += 1
        file.write("\n]}\n" if bundle.written else "}\n")
    return count


class _Bits:
    """A set of small whole numbers, one bit each: a million exams take 125 kilobytes."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, number: int) -> bool:
        """Whether the number is new."""
        place, bit = number >> 3, 1 << (number & 7)
        if place >= len(self._bits):
            self._bits.extend(bytes(place + 1 - len(self._bits)))
        is_new = not self._bits[place] & bit
        self._bits[place] |= bit
        return is_new

    def __contains__(self, number: int) -> bool:
        place = number >> 3
        return place < len(self._bits) and bool(self._bits[place] & 1 << (number & 7))


class _Bundle:
    """The entries of one bundle. Every resource comes once, before what points to it."""

    def __init__(self, identity: bool) -> None:
        self.identity = identity
        self.written = 0
        # Two clinics both have an exam 1: names within a bundle hang on a number of its own.
        self._space = uuid.uuid4()
        self._people, self._devices, self._exams = _Bits(), _Bits(), _Bits()

    def entries(self, visit: VisitBundle) -> Iterator[Json]:
        results: list[Json] = []
        words: list[str] = []
        for exam in visit.of_ears:
            for observation in self._observations(visit, exam, words, results):
                if self._people.add(visit.person.id):
                    yield self._entry(f"person-{visit.person.id}", self._patient(visit.person))
                if visit.device is not None and self._devices.add(visit.device.id):
                    yield self._entry(f"device-{visit.device.id}", _device(visit))
                yield observation
        if results:
            report = self._report(visit, results, words)
            yield self._entry(f"visit-{visit.visit.id}", report)

    def _observations(
        self, visit: VisitBundle, exam: ExamBundle, words: list[str], results: list[Json]
    ) -> Iterator[Json]:
        record = exam.exam
        if record.kind == "screen":
            if not exam.results or "verdict" not in exam.results[-1].shown:
                return
            reference = exam.reference
            if reference is not None:
                earlier = self._earlier(visit, exam, reference)
                if earlier is not None and self._exams.add(_number(reference)):
                    yield self._entry(_exam_name(reference), earlier)
            screen = self._screen(visit, exam, exam.results[-1])
            words.append(screen["valueCodeableConcept"]["text"])
        else:
            thresholds = _thresholds(exam)
            if not thresholds:
                return
            screen = self._panel(visit, exam, thresholds)
        name = _exam_name(record)
        results.append(self._reference(name))
        if self._exams.add(_number(record)):
            yield self._entry(name, screen)

    def _earlier(self, visit: VisitBundle, exam: ExamBundle, reference: ExamRecord) -> Json | None:
        """The reference as far as the screen knows it, if its own visit is not in the bundle."""
        if reference.kind == "audiogram":
            thresholds = _thresholds(ExamBundle(reference))
        elif reference.kind == "exam" and reference.state == "done" and not reference.relative:
            thresholds = _shown(exam.results[-1].shown.get("reference_thresholds") or ())
        else:
            return None
        earlier = VisitBundle(visit.person, visit.visit, ())
        resource = self._panel(earlier, ExamBundle(reference), thresholds)
        if reference.measured_at is None:  # that visit's time is not this one's
            resource.pop("effectiveDateTime", None)
        resource.pop("performer", None)
        return resource if thresholds else None

    def _entry(self, name: str, resource: Json) -> Json:
        self.written += 1
        full = self._name(name)
        kind = resource.pop("resourceType")
        own = {"resourceType": kind, "id": full.removeprefix("urn:uuid:"), **resource}
        return {"fullUrl": full, "resource": own}

    def _name(self, name: str) -> str:
        return f"urn:uuid:{uuid.uuid5(self._space, name)}"

    def _reference(self, name: str) -> Json:
        return {"reference": self._name(name)}

    def _patient(self, person: Person) -> Json:
        if not self.identity or person.code is None:
            known = {"system": f"{LOCAL}/person", "value": f"person-{person.id}"}
        else:
            known = {"value": person.code}
        patient: Json = {"resourceType": "Patient", "identifier": [known]}
        if person.sex is not None:
            patient["gender"] = GENDERS.get(person.sex, "unknown")
        if self.identity and person.name:
            patient["name"] = [{"text": person.name}]
        if self.identity and person.birth_date is not None:
            patient["birthDate"] = person.birth_date.isoformat()
        return patient

    def _common(self, visit: VisitBundle, exam: ExamBundle, kind: str) -> Json:
        record = exam.exam
        status = "preliminary"
        if record.state == "done" or record.kind == "audiogram":
            status = "amended" if len(exam.results) > 1 else "final"
        common: Json = {
            "resourceType": "Observation",
            **_label(visit),
            "status": status,
            "category": [CATEGORY],
            "code": {},
            "subject": self._reference(f"person-{visit.person.id}"),
            **_effective(measured_at(record, visit.visit)),
            "bodySite": {"text": f"{record.ear} ear"},
            "method": {"text": kind},
        }
        if exam.results:
            common["issued"] = _time(exam.results[-1].at)
        if self.identity and record.kind != "audiogram":
            common["performer"] = [{"display": visit.visit.author}]
        if visit.device is not None:
            common["device"] = self._reference(f"device-{visit.device.id}")
        return common

    def _panel(self, visit: VisitBundle, exam: ExamBundle, thresholds: list[Json]) -> Json:
        record = exam.exam
        if record.kind == "audiogram":
            method = "Air conduction, by the method of the source"
            notes = [f"Imported from {record.source}."] if self.identity and record.source else []
            given = Audiogram.from_dict(record.design)
            thresholds = [
                *thresholds,
                _own("threshold-sd", "Standard deviation of a threshold", _db(given.sd_db)),
                _own(
                    "method-offset",
                    "What the method reads above the level heard half the time",
                    _db(given.method_offset_db),
                ),
            ]
        else:
            method = "Air conduction, adaptive pure-tone audiometry with a Bayesian model"
            notes = [f"earshift {record.engine_version}. {_calibration(visit)}", *_remarks(exam)]
        panel = self._common(visit, exam, method)
        panel["code"] = {
            "coding": [{"system": codes()["system"], "code": codes()["panel_air"]}],
            "text": f"Pure-tone air-conduction thresholds in dB HL, {record.ear} ear",
        }
        if notes:
            panel["note"] = [{"text": text} for text in notes]
        panel["component"] = [_for_ear(threshold, record.ear) for threshold in thresholds]
        return panel

    def _screen(self, visit: VisitBundle, exam: ExamBundle, result: ResultRecord) -> Json:
        record, verdict = exam.exam, result.shown["verdict"]
        words = str(result.shown.get("words") or verdict["decision"])
        screen = self._common(visit, exam, "Air conduction, Bayesian screening for change")
        screen["code"] = _concept(
            "change-screen", f"Screening for change of hearing, {record.ear} ear"
        )
        # Older results do not name the ear themselves.
        said = words if result.shown.get("sentence") else f"{record.ear} ear: {words}"
        screen["valueCodeableConcept"] = _concept(verdict["decision"], said)
        if verdict["decision"] in INTERPRETATION:
            code = INTERPRETATION[verdict["decision"]]
            screen["interpretation"] = [{"coding": [{"system": INTERPRETATIONS, "code": code}]}]
        screen["note"] = [
            {"text": text}
            for text in (
                NOT_DIAGNOSTIC,
                f"Question: {_asked(verdict)}.",
                verdict.get("unverified"),
                f"earshift {result.engine_version}. {_calibration(visit)}",
                *_remarks(exam),
            )
            if text
        ]
        derived: Json = {"display": "the reference, which is not in this bundle"}
        if exam.reference is not None and _number(exam.reference) in self._exams:
            derived = self._reference(_exam_name(exam.reference))
        screen["derivedFrom"] = [derived]
        one = {"system": UCUM, "code": "1", "unit": "1"}
        what = "that the rule is met" if verdict.get("rule") else "of change"
        evidence = [
            _own("p-changed", f"Probability {what}", {"value": verdict["p_changed"], **one}),
            _own("log-bf", "Log Bayes factor of change", {"value": verdict["log_bf"], **one}),
        ]
        if verdict["decision"] == "not determinable":  # a probability would pass for an answer
            evidence = []
        unsaid = set(verdict.get("not_determinable_hz") or ())
        screen["component"] = [
            *evidence,
            _own("tones", "Tones answered", {"value": verdict["tones"], **one}),
            *(
                _own(
                    f"shift-{shift['frequency_hz']:g}",
                    f"Estimated shift at {shift['frequency_hz']:g} Hz, worse is positive",
                    _db(round(shift["shift_db"], 1)),
                )
                for shift in verdict.get("shifts") or ()
                if shift["frequency_hz"] not in unsaid
            ),
            {
                "code": _concept("reliability", "Reliability of the answers"),
                "valueString": str(verdict.get("reliability", "not known")),
            },
        ]
        return screen

    def _report(self, visit: VisitBundle, results: list[Json], words: list[str]) -> Json:
        finished = all(
            exam.exam.state == "done" or exam.exam.kind == "audiogram" for exam in visit.exams
        )
        dated = [exam.exam.measured_at for exam in visit.exams if exam.exam.measured_at]
        imported = visit.visit.mode == "imported"
        at = dated[0] if dated else None if imported else visit.visit.started_at
        report: Json = {
            "resourceType": "DiagnosticReport",
            **_label(visit),
            "status": "final" if finished else "partial",
            "category": [
                {
                    "coding": [
                        {"system": "http://terminology.hl7.org/CodeSystem/v2-0074", "code": "AU"}
                    ]
                }
            ],
            "code": _concept("visit", "Hearing: audiograms and screening for change"),
            "subject": self._reference(f"person-{visit.person.id}"),
            **_effective(at),
        }
        if self.identity and not imported:
            report["performer"] = [{"display": visit.visit.author}]
        report["result"] = results
        if words:
            report["conclusion"] = " ".join([*words, NOT_DIAGNOSTIC])
        return report


def _exam_name(record: ExamRecord) -> str:
    """Of what an exam says of one ear: one of both ears has two panels."""
    return f"exam-{record.id}-{record.ear}"


def _number(record: ExamRecord) -> int:
    """The same as a number of its own."""
    return len(EARS) * record.id + EARS.index(record.ear)


def _label(visit: VisitBundle) -> Json:
    """Simulated visits are labelled as nobody's."""
    if visit.visit.mode != "simulated":
        return {}
    return {"meta": {"security": [{"system": CONFIDENTIALITY_OF_TESTS, "code": TEST_DATA}]}}


def _concept(code: str, text: str) -> Json:
    return {"coding": [{"system": LOCAL, "code": code}], "text": text}


def _own(code: str, text: str, quantity: Json) -> Json:
    return {"code": _concept(code, text), "valueQuantity": quantity}


def _db(value: float, comparator: str | None = None) -> Json:
    quantity: Json = {"value": value, "unit": "dB", "system": UCUM, "code": "dB"}
    return quantity if comparator is None else {**quantity, "comparator": comparator}


def _threshold(frequency_hz: float, quantity: Json) -> Json:
    return {"frequency_hz": frequency_hz, "valueQuantity": quantity}


def _for_ear(part: Json, ear: str) -> Json:
    """A component: of a threshold with the ear's code, of anything else as it is."""
    if "frequency_hz" not in part:
        return part
    frequency = part["frequency_hz"]
    code = {
        "coding": [threshold_code(ear, frequency)],
        "text": f"Hearing threshold, {ear} ear, {frequency:g} Hz, dB HL",
    }
    return {"code": code, "valueQuantity": part["valueQuantity"]}


def _thresholds(exam: ExamBundle) -> list[Json]:
    """Measured thresholds only: an audiogram's, or those of a full exam that was completed."""
    record = exam.exam
    if record.relative:  # its levels are no hearing levels, and the codes mean those
        return []
    if record.kind == "audiogram":
        audiogram = Audiogram.from_dict(record.design)
        given = [_threshold(f, _db(level)) for f, level in audiogram.thresholds_db_hl.items()]
        given += [_threshold(f, _db(lv, ">")) for f, lv in audiogram.no_response_db_hl.items()]
        return sorted(given, key=lambda part: float(part["frequency_hz"]))
    if record.kind == "exam" and record.state == "done" and exam.results:
        return _shown(exam.results[-1].shown.get("thresholds") or ())
    return []


def _shown(thresholds: Iterable[Any]) -> list[Json]:
    """Thresholds as a result shows them; outside the tested levels only a bound is known."""
    comparators = {"above": ">", "below": "<", None: None}
    return [
        _threshold(
            float(one["frequency_hz"]),
            _db(round(float(one["level_db_hl"]), 1), comparators[one.get("censored")]),
        )
        for one in thresholds
    ]


def _device(visit: VisitBundle) -> Json:
    device = visit.device
    assert device is not None
    resource: Json = {
        "resourceType": "Device",
        "deviceName": [{"name": device.name, "type": "user-friendly-name"}],
        "type": {"text": f"audiometer, {device.transducer} transducer"},
    }
    if device.serial:
        resource["serialNumber"] = device.serial
    if device.model:
        resource["modelNumber"] = device.model
    resource["version"] = [{"type": {"text": "earshift"}, "value": __version__}]
    return resource


def _remarks(exam: ExamBundle) -> list[str]:
    """What had to be known about the equipment when the exam was given."""
    return [str(remark) for remark in exam.exam.delivery.get("remarks", ())]


def _asked(verdict: Json) -> str:
    """What was asked, as people call it."""
    rule = verdict.get("rule")
    return rule_title(str(rule)) if rule else str(verdict.get("protocol"))


def _calibration(visit: VisitBundle) -> str:
    if visit.calibration is None:
        return "No calibration on record."
    state = calibration.state(visit.device, visit.calibration, visit_day(visit.visit))
    expired = state == calibration.EXPIRED
    return ("CALIBRATION EXPIRED. " if expired else "") + (
        f"Calibrated ({visit.calibration.kind}) on {visit.calibration.done_on.isoformat()} with "
        f"{visit.calibration.coupler} by {visit.calibration.laboratory}, "
        f"due {visit.calibration.due_on.isoformat()}."
    )


def _effective(at: datetime | None) -> Json:
    """When it was measured, if that is known: the visit of an import is no such time."""
    return {} if at is None else {"effectiveDateTime": _time(at)}


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()
