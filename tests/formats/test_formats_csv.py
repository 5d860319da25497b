"""References from CSV and NHANES: codes, times, people, and every row that is rejected."""

import contextlib
import csv
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from earshift.engine.audiogram import Audiogram
from earshift.formats import IMPORTS, References, read_references, sheets
from earshift.formats import nhanes as nhanes_format
from earshift.formats.files import guard, unguard
from earshift.formats.references import MAX_ITEMS
from support.surveys import GOOD, aux, xpt

ZONE = {"timezone": "Europe/Berlin"}
LONG = "person,date,ear,frequency_hz,threshold_db_hl"


def read(folder: Path, text: str | bytes, kind: str = "csv", **options: Any) -> References:
    path = folder / "file.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_references(path, kind, **options)


def reasons(found: References) -> dict[int, str]:
    assert len({rejected.row for rejected in found.rejected}) == len(found.rejected)
    return {rejected.row: rejected.reason for rejected in found.rejected}


def thresholds(found: References) -> dict[tuple[str, str], dict[float, float]]:
    return {
        (item.code, item.ear): dict(Audiogram.from_dict(item.audiogram).thresholds_db_hl)
        for item in found.accepted
    }


# --- Long tables ----------------------------------------------------------------------------------


def test_a_long_table(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        f"""{LONG},name,birth_date,sex
A1,2025-07-01 09:30:00,left,500,10,Zoë Ó,1970-02-03,F
A1,2025-07-01 09:30:00,L,4000,-5,Zoë Ó,1970-02-03,F
A1,2025-07-01 09:30:00,R,4000,12.5,Zoë Ó,1970-02-03,F
""",
        **ZONE,
    )
    assert found.rejected == found.left_out == ()
    left, right = found.accepted
    assert left.audiogram == Audiogram({500: 10, 4000: -5}).to_dict()
    assert right.audiogram == Audiogram({4000: 12.5}).to_dict()
    assert left.measured_at == datetime(2025, 7, 1, 7, 30, tzinfo=UTC)
    assert (left.name, left.birth_date, left.sex) == ("Zoë Ó", date(1970, 2, 3), "female")
    assert left.source == "file.csv, CSV"


@pytest.mark.parametrize("encoded", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_byte_order_marks_delimiters_and_line_ends(
    tmp_path: Path, encoded: str, delimiter: str, end: str
) -> None:
    text = f"{LONG}{end}ß,,left,500,10{end}{end}ß,,left,1000,15".replace(",", delimiter)
    found = read(tmp_path, text.encode(encoded))
    assert thresholds(found) == {("ß", "left"): {500: 10, 1000: 15}}
    assert found.accepted[0].measured_at is None


def test_a_bad_row_takes_its_audiogram_with_it_and_no_other(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        f"{LONG}\nA,,left,500,10\nA,,left,1000,DNT\nA,,left,2000,20\nA,,right,500,5\nB,,left,500,5\n",
    )
    assert thresholds(found) == {("A", "right"): {500: 5}, ("B", "left"): {500: 5}}
    assert reasons(found).keys() == {2, 3, 4}
    assert "'DNT'" in reasons(found)[3]
    assert reasons(found)[2] == "row 3 of the same audiogram is rejected"


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("A,,left,500,99", "99 may be a threshold or a code"),
        ("A,,left,500,120", "120 may be a threshold or a code"),
        ("A,,left,500,666", "666 dB HL is not possible"),
        ("A,,left,500,888", "888 dB HL is not possible"),
        ("A,,left,500,999", "999 dB HL is not possible"),
        ("A,,left,500,-99", "-99 dB HL is not possible"),
        ("A,,left,500,NR", "neither a number nor a code"),
        ("A,,left,500,1e1", "neither a number nor a code"),
        ("A,,left,500,nan", "neither a number nor a code"),
        ("A,,left,500,Infinity", "neither a number nor a code"),
        ("A,,left,500,1_0", "neither a number nor a code"),
        ("A,,left,500,١٠", "neither a number nor a code"),
        ("A,,left,500," + "9" * 5000, "neither a number nor a code"),
        ("A,,left,500,", "this audiogram has no threshold"),
        ("A,,both,500,10", "ear must be left or right"),
        ("A,,left,0.5,10", "not kHz"),
        ("A,,left,5e2,10", "not a frequency"),
        ("A,,left,99999,10", "100 to 20000 Hz"),
        (" ,,left,500,10", "the person is missing"),
        ("A" * 201 + ",,left,500,10", "longer than 200"),
        ("A\x07,,left,500,10", "cannot be stored"),
        ("A,2025-07-01 10:00:00,left,500,10", "has no time zone; name the zone of the file"),
        ("A,2025-07-01,left,500,10", "has no time zone"),
        ("A,01.07.2025,left,500,10", "may begin with the day or the month"),
        ("A,31.07.2025,left,500,10", "'31.07.2025' begins with the day"),
        ("A,2025-07-01,left,500,NR", "neither a number nor a code"),
        ("A,2025-02-30,left,500,10", "not a date or time"),
        ("A,1066-10-14T10:00Z,left,500,10", "not between 1900 and now"),
        ("A,9999-12-31T23:59-10:00,left,500,10", "not between 1900 and now"),
        ("A,2990-01-01T00:00Z,left,500,10", "future"),
        ("A,,left,500", "4 fields where the header has 5"),
        ("A,,left,500,10,20", "6 fields where the header has 5"),
    ],
)
def test_rows_that_are_rejected(tmp_path: Path, row: str, says: str) -> None:
    found = read(tmp_path, f"{LONG}\n{row}\nB,,left,500,10\n")
    assert list(thresholds(found)) == [("B", "left")]
    assert says in reasons(found)[2]
    assert len(reasons(found)[2]) < 200


def test_what_was_measured_today_is_taken_before_noon_and_tomorrow_is_not(tmp_path: Path) -> None:
    zone = "Etc/GMT" if datetime.now(UTC).hour < 12 else "Etc/GMT+12"  # where it is morning
    today = datetime.now(ZoneInfo(zone)).date()
    rows = f"A,{today},left,500,10\nB,{today + timedelta(days=2)},left,500,10"
    found = read(tmp_path, f"{LONG}\n{rows}\n", timezone=zone)
    assert list(thresholds(found)) == [("A", "left")]
    assert "in the future" in reasons(found)[3]


def test_codes_mean_what_the_caller_says(tmp_path: Path) -> None:
    text = f"{LONG}\nA,,left,500,nr\nA,,left,1000,CNT\nA,,left,2000,99\nA,,left,3000,120\n"
    how = {
        "sentinels": {
            "NR": "no response",
            "CNT": "not tested",
            "99": "no response",
            "120": "threshold",
        },
        "no_response_db_hl": {500: 90, 2000.0: 100},
    }
    (item,) = read(tmp_path, text, **how).accepted
    assert (
        item.audiogram == Audiogram({3000: 120}, no_response_db_hl={500: 90, 2000: 100}).to_dict()
    )


def test_no_response_without_its_level_is_rejected(tmp_path: Path) -> None:
    found = read(tmp_path, f"{LONG}\nA,,left,500,NR\n", sentinels={"NR": "no response"})
    assert "give no_response_db_hl" in reasons(found)[2]


def test_the_level_tried_may_stand_in_the_file(tmp_path: Path) -> None:
    text = f"{LONG},no_response,level_tried_db_hl\nA,,left,500,,true,85\nA,,left,1000,10,false,85\n"
    (item,) = read(tmp_path, text, no_response_db_hl=100).accepted
    assert item.audiogram == Audiogram({1000: 10}, no_response_db_hl={500: 85}).to_dict()
    both = read(tmp_path, f"{LONG},no_response\nA,,left,500,10,true\n", no_response_db_hl=100)
    assert "both a threshold and no response" in reasons(both)[2]


def test_bone_conduction_is_rejected(tmp_path: Path) -> None:
    found = read(tmp_path, f"{LONG},conduction\nA,,left,500,10,bone\nB,,left,500,10,air\n")
    assert list(thresholds(found)) == [("B", "left")]
    assert "conduction must be air" in reasons(found)[2]


def test_simulated_ears_are_rejected(tmp_path: Path) -> None:
    found = read(tmp_path, f"{LONG},mode\nA,,left,500,10,supervised\nB,,left,500,10,simulated\n")
    assert list(thresholds(found)) == [("A", "left")]
    assert "not a real person's hearing" in reasons(found)[3]


def test_a_frequency_twice_is_no_mean(tmp_path: Path) -> None:
    found = read(tmp_path, f"{LONG}\nA,,left,500,10\nA,,left,500,20\n")
    assert not found.accepted
    assert "500 Hz appears twice" in reasons(found)[3]


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2025-07-01 09:30", (2025, 7, 1, 7, 30)),
        ("2025-07-01T09:30:00Z", (2025, 7, 1, 9, 30)),
        ("2025-07-01T09:30:00-05:00", (2025, 7, 1, 14, 30)),
        ("2025-01-31", (2025, 1, 31, 11, 0)),
        ("2025-10-26 02:30:00", (2025, 10, 26, 0, 30)),  # comes twice: the first is taken
    ],
)
def test_times_become_utc(tmp_path: Path, text: str, utc: tuple[int, ...]) -> None:
    (item,) = read(tmp_path, f"{LONG}\nA,{text},left,500,10\n", **ZONE).accepted
    assert item.measured_at == datetime(*utc, tzinfo=UTC)  # type: ignore[arg-type]


def test_a_time_that_the_clocks_skipped_is_rejected(tmp_path: Path) -> None:
    found = read(tmp_path, f"{LONG}\nA,2025-03-30 02:30:00,left,500,10\n", **ZONE)
    assert "does not exist on the clocks" in reasons(found)[2]


# --- Wide tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        "person,left_500,left_1000,right_8000",
        "Chart ID,left500,left1,right8",
        "code,L500,L1k,R8k",
        "subject-id,left_500_hz,left_1khz,right_8000_hz_db_hl",
    ],
)
def test_a_wide_table_by_many_names(tmp_path: Path, header: str) -> None:
    found = read(tmp_path, f"{header}\nA,10,15,20\nB,,,5\n")
    assert thresholds(found) == {
        ("A", "left"): {500: 10, 1000: 15},
        ("A", "right"): {8000: 20},
        ("B", "right"): {8000: 5},
    }


def test_any_column_can_be_named(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "EMP NO,Date of test,x\nA,2025-07-01,10\n",
        columns={"EMP NO": "person", "Date of test": "date", "x": "left_500"},
        **ZONE,
    )
    assert thresholds(found) == {("A", "left"): {500: 10}}


def test_a_column_that_the_caller_chose_goes_first(tmp_path: Path) -> None:
    text = "code,badge,left_500\nA,B,10\n"
    assert thresholds(read(tmp_path, text)) == {("A", "left"): {500: 10}}
    chosen = read(tmp_path, text, columns={"badge": "person"})
    assert thresholds(chosen) == {("B", "left"): {500: 10}}


def test_a_bad_cell_rejects_both_ears_of_its_row(tmp_path: Path) -> None:
    found = read(tmp_path, "person,left500,right500\nA,10,99\nB,10,15\n")
    assert {code for code, _ in thresholds(found)} == {"B"}
    assert reasons(found)[2].startswith("right 500 Hz: 99 may be")


def test_two_rows_of_one_test(tmp_path: Path) -> None:
    found = read(tmp_path, "person,left500\nA,10\nA,10\nB,10\nB,20\nB,10\nC,5\n")
    assert thresholds(found) == {("A", "left"): {500: 10}, ("C", "left"): {500: 5}}
    assert reasons(found) == {
        3: "the same left ear as in row 2",
        4: "row 5 differs for the same left ear and time",
        5: "row 4 differs for the same left ear and time",
        6: "other rows differ for the same left ear and time",
    }


MIE = (
    "chart_id,id_type,ext_doc_id,test_datetime,"
    "left500,left1,left2,left3,left4,left6,left8,"
    "right500,right1,right2,right3,right4,right6,right8,"
    "left_baseline,right_baseline,left_sts,right_sts,calibration_date"
)


def mie(left: str, right: str, flags: str = "YES,YES", when: str = "2020-03-02 08:15:00") -> str:
    return f"{MIE}\nM7,MR,d1,{when},{left},{right},{flags},YES,YES,2020-01-01\n"


def test_the_shape_of_mie(tmp_path: Path) -> None:
    text = mie("10,10,15,20,25,30,99", "5,5,5,5,10,10,15")
    found = read(tmp_path, text, "mie", timezone="America/Chicago", no_response_db_hl=90)
    left, right = sorted(found.accepted, key=lambda item: item.ear)
    assert (
        left.audiogram
        == Audiogram(
            {500: 10, 1000: 10, 2000: 15, 3000: 20, 4000: 25, 6000: 30},
            no_response_db_hl={8000: 90},
        ).to_dict()
    )
    assert (left.code, left.measured_at) == ("M7", datetime(2020, 3, 2, 14, 15, tzinfo=UTC))
    assert right.source == "file.csv, CSV, baseline"
    assert "sts" not in right.source


def test_only_the_flagged_ear_is_a_baseline(tmp_path: Path) -> None:
    ear = "10,10,15,20,25,30,35"
    how = {"timezone": "America/Chicago"}
    found = read(tmp_path, mie(ear, ear, "NO,YES"), "mie", **how)
    assert [item.ear for item in found.accepted] == ["right"]
    assert [(out.row, out.reason) for out in found.left_out] == [
        (2, "the left ear is not a baseline")
    ]
    every = read(tmp_path, mie(ear, ear, "NO,YES"), "mie", baselines_only=False, **how)
    assert {item.ear: item.source for item in every.accepted} == {
        "left": "file.csv, CSV, not a baseline",
        "right": "file.csv, CSV, baseline",
    }
    unclear = read(tmp_path, mie(ear, ear, ",YES"), "mie", **how)
    assert "left_baseline must be YES or NO" in reasons(unclear)[2]


def test_mie_needs_its_columns(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not of the shape mie"):
        read(tmp_path, "person,left500\nA,10\n", "mie")


# --- Formulas -------------------------------------------------------------------------------------


@given(st.text())
@example("=1+1")
@example("'=1+1")
@example("''-x")
@example("'x")
@example("\t")
def test_an_apostrophe_protects_and_goes_away(text: str) -> None:
    assert unguard(guard(text)) == text
    assert not guard(text).startswith(("=", "+", "-", "@", "\t", "\r"))


def test_the_importer_takes_the_apostrophe_off(tmp_path: Path) -> None:
    (item,) = read(tmp_path, f"{LONG},name\n'-7,,left,500,'-5,'=Ann\n").accepted
    assert (item.code, item.name) == ("-7", "=Ann")
    assert item.audiogram == Audiogram({500: -5}).to_dict()


# --- Files as a whole -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no column for the person"),
        (b"\xff\xfeA\x00", "not UTF-8"),
        ("person,left500\nÄ,10\n".encode("latin-1"), "not UTF-8"),
        ("person,left500\nA,10\n".encode("utf-16-le"), "null bytes"),
        (b"person,left500\nA\x00,10\n", "null bytes"),
        (b"\x1f\x8b\x08\x00", "compressed"),
        (b"PK\x03\x04xxxx", "compressed"),
        (b"a,b\n1,2\n", "no column for the person"),
        (b"person,name\nA,B\n", "neither"),
        (b"person,ear,frequency_hz,threshold_db_hl,left500\n", "both"),
        (b"person,person,left500\n", "person more than once"),
        (b"person,left500,L500\n", "left ear at 500 Hz more than once"),
        (b"person,left50\n", "100 to 20000 Hz"),
        (b'person,left500\n"A,10\n', "not a valid CSV"),
        (b'person,left500\n"A"x,10\n', "not a valid CSV"),
        (b"person,left500\n" + b"A" * 200_000 + b",1\n", "not a valid CSV"),
        (b"person,left500\n" + b"A" * 2_000_000, "more than 1,000,000 characters"),
        (b"person,left500," + b"x," * 3000 + b"\n", "3003 columns"),
        (b"x," * 1_000_000, "characters"),
        (b"person," + b",".join(b"left%d" % f for f in range(500, 700)), "200 columns of thres"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, data: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read(tmp_path, data)


def test_the_size_is_checked_before_anything_is_read(tmp_path: Path) -> None:
    path = tmp_path / "big.csv"
    with path.open("wb") as file:
        file.truncate(sheets.MAX_BYTES + 1)  # a file of holes: no disk is used
    with pytest.raises(ValueError, match="at most 128 MB"):
        read_references(path)


def test_an_ear_has_only_so_many_frequencies(tmp_path: Path) -> None:
    rows = "".join(f"A,,left,{500 + k},10\n" for k in range(101))
    found = read(tmp_path, f"{LONG}\n{rows}")
    assert not found.accepted
    assert "at most 100 frequencies" in reasons(found)[102]


@pytest.mark.slow
def test_too_many_rejected_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="split it"):
        read(tmp_path, "person,left500\n" + ",1\n" * (MAX_ITEMS + 1))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"timezone": "Mars/Olympus"}, "IANA"),
        ({"timezone": "../../etc/passwd"}, "IANA"),
        ({"timezone": 3}, "IANA"),
        ({"sentinels": {"NR": "deaf"}}, "must mean one of"),
        ({"sentinels": {"NR": "no response", " nr": "not tested"}}, "given twice"),
        ({"sentinels": ["NR"]}, "must map text to text"),
        ({"no_response_db_hl": 999}, "is not possible"),
        ({"no_response_db_hl": {500: "x"}}, "must be a number"),
        ({"sd_db": 0}, "sd_db must be positive"),
        ({"columns": {"nowhere": "person"}}, "no column of this name, got 'nowhere'"),
        ({"bananas": 1}, "unknown option"),
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read(tmp_path, "person,left500\nA,1\n", **options)


def test_kinds(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be one of csv, mie, fhir, nhanes"):
        read(tmp_path, "", "xml")
    with pytest.raises(ValueError, match="of an unknown kind"):
        read_references(tmp_path / "x.pdf")
    for kind in IMPORTS:
        with pytest.raises(ValueError, match="there is no file"):
            read_references(tmp_path / "missing", kind)
        with pytest.raises(ValueError, match="is not a file"):
            read_references(tmp_path, kind)


@given(data=st.binary(max_size=300))
@example(data=b"person,left500\n\r\r\n\n,")
@pytest.mark.parametrize("kind", ["csv", "mie", "nhanes"])
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("fuzz", numbered=True) / "file"
    path.write_bytes(data)
    with contextlib.suppress(ValueError):
        assert isinstance(read_references(path, kind), References)


CELLS = st.one_of(
    st.sampled_from(["A", "left", "R", "500", "10", "99", "NR", "2025-01-01", "'=x", '"', ""]),
    st.text(max_size=5),
)


@given(rows=st.lists(st.lists(CELLS, min_size=5, max_size=6), max_size=6), strict=st.booleans())
def test_any_table_gives_whole_audiograms_or_reasons(
    tmp_path_factory: pytest.TempPathFactory, rows: Sequence[Sequence[str]], strict: bool
) -> None:
    path = tmp_path_factory.mktemp("fuzz", numbered=True) / "file.csv"
    with path.open("w", newline="", encoding="utf-8", errors="replace") as file:
        csv.writer(file).writerows([LONG.split(","), *rows])
    how: dict[str, Any] = {} if strict else {**ZONE, "sentinels": {"NR": "not tested"}}
    if b"\0" in path.read_bytes():
        with pytest.raises(ValueError, match="null bytes"):
            read_references(path, **how)
        return
    found = read_references(path, **how)
    for item in found.accepted:
        assert Audiogram.from_dict(item.audiogram).to_dict() == item.audiogram
        assert item.code
        assert item.ear in ("left", "right")
    assert all(2 <= rejected.row <= len(rows) + 1 for rejected in found.rejected)


# --- NHANES ---------------------------------------------------------------------------------------


def nhanes_file(folder: Path, *rows: Sequence[float | str]) -> Path:
    path = folder / "AUX_G.XPT"
    path.write_bytes(xpt(["SEQN", *nhanes_format.COLUMNS], rows))
    return path


def test_nhanes_ears_are_references(tmp_path: Path) -> None:
    not_tested = ["."] * 7
    deaf = [10.0, 888.0, 0.0, 15.0, 25.0, 666.0, 666.0]
    path = nhanes_file(
        tmp_path, [62161.0, *GOOD, *deaf], [62162.0, *not_tested, *not_tested], [0.5, *GOOD, *GOOD]
    )
    found = read_references(path, method_offset_db=2.5)
    right, left = found.accepted
    assert (right.code, right.ear, right.measured_at) == ("62161", "right", None)
    hz = (500, 1000, 2000, 3000, 4000, 6000, 8000)
    assert (
        right.audiogram
        == Audiogram(dict(zip(hz, GOOD, strict=True)), method_offset_db=2.5).to_dict()
    )
    assert (
        left.audiogram
        == Audiogram(
            {500: 10, 2000: 0, 3000: 15, 4000: 25},
            method_offset_db=2.5,
            no_response_db_hl={6000: 100, 8000: 90},
        ).to_dict()
    )
    assert [out.row for out in found.left_out] == [2, 2]
    assert "not a person's number" in reasons(found)[3]
    louder = read_references(path, no_response_db_hl=110)
    assert louder.accepted[1].audiogram["no_response_db_hl"] == [[6000, 110], [8000, 110]]


def test_an_impossible_number_rejects_the_ear(tmp_path: Path) -> None:
    found = read_references(nhanes_file(tmp_path, [1.0, *GOOD, 777.0, *GOOD[1:]]))
    assert [item.ear for item in found.accepted] == ["right"]
    assert "left ear: the number at 500 Hz cannot be" in reasons(found)[1]


def test_a_file_without_numbers_of_people_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "AUX.XPT"
    path.write_bytes(aux([*GOOD, *GOOD]))
    with pytest.raises(ValueError, match="lacks the columns SEQN"):
        read_references(path)
