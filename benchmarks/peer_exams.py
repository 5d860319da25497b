"""First exams of real ears by AEPsych, beside earshift's own, on the same listeners.

Adds rows to the study of first exams, in FOLDER/peers.csv; the next `earshift study rules` with the
same folder shows them. Run by `make results-peers`.
"""

import argparse
import csv
import json
import subprocess
from pathlib import Path

import numpy as np

from earshift.engine.tone import Tone
from earshift.studies.case import seed_of
from earshift.studies.first_exams import MARKS, PEER, ExamCase
from earshift.studies.rules import drawn_ears
from earshift.studies.sittings import HZ, STANDARD, Answerer

HERE = Path(__file__).resolve().parent


def exam_rows(case: ExamCase, python: str) -> list[tuple[object, ...]]:
    """The rows of one ear, as `ExamCase` has them."""
    truth = np.array([level for _, level in case.ear.thresholds_db_hl])
    person = Answerer(truth, STANDARD, seed_of(case.seed, case.ear.name, case.spread_db))
    marks, places = (",".join(f"{x:g}" for x in numbers) for numbers in (MARKS, HZ))
    rows: list[tuple[object, ...]] = []
    with subprocess.Popen(
        [python, str(HERE / "peer_exam.py"), str(case.seed), str(MARKS[-1]), marks, places],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as peer:  # fmt: skip
        assert peer.stdin is not None
        assert peer.stdout is not None
        for line in peer.stdout:
            said = json.loads(line)
            if "tones" not in said:
                heard = person.hears(Tone(said["frequency_hz"], said["level_db_hl"]))
                peer.stdin.write(json.dumps(heard) + "\n")
                peer.stdin.flush()
                continue
            ends = zip(said["low"], said["middle"], said["high"], truth, HZ, strict=True)
            rows += [
                (
                    PEER, case.spread_db, case.ear.name, said["tones"], f, middle - level,
                    int(low <= level <= high), high - low,
                )
                for low, middle, high, level, f in ends
            ]  # fmt: skip
    if peer.returncode:
        raise SystemExit(f"the peer's exam of {case.ear.name} ended with {peer.returncode}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ears", type=Path, help="CSV of real ears")
    parser.add_argument("folder", type=Path, help="of the rules' study")
    parser.add_argument("--peers", required=True, help="python of the peers' environment")
    parser.add_argument("--count", type=int, default=8)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / "peers.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(ExamCase.columns)
        for ear in drawn_ears(options.ears, "held-back", options.count):
            writer.writerows(exam_rows(ExamCase(ear, PEER), options.peers))
            file.flush()
            print(f"{ear.name}: done", flush=True)


if __name__ == "__main__":
    main()
