"""Results as they were shown, each with a fingerprint of the trials it came from."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from earshift.records import ResultRecord, TrialCounts
from earshift.store import checks, exams, rows, trials
from earshift.store import tables as t
from earshift.store.database import reading, writing
from earshift.store.errors import StoreConflict
from earshift.store.rows import Part


def results_of(
    connection: Connection, exam_ids: Sequence[int]
) -> dict[int, tuple[ResultRecord, ...]]:
    query = select(t.results).where(t.results.c.exam_id.in_(exam_ids)).order_by(t.results.c.id)
    return rows.grouped("exam_id", rows.to_records(ResultRecord, connection.execute(query)))


class Results(Part):
    """The store's calls about results."""

    def add_result(
        self,
        exam_id: int,
        *,
        author: str,
        shown: Mapping[str, Any],
        settings: Mapping[str, Any],
        engine_version: str,
        closes_as: str | None = None,
        expected: TrialCounts | None = None,
    ) -> ResultRecord:
        """What was shown at the end of an exam, with a hash of the trials it came from.

        With `closes_as` the exam gets that state at once; one that is closed already is refused.
        With `expected` an open exam is, too, if it holds other trials than the result came from.
        """
        author = checks.text(author, "author")
        values = {
            "at": checks.now(),
            "author": author,
            "shown": checks.plain(shown, "shown"),
            "settings": checks.plain(settings, "settings"),
            "engine_version": checks.text(engine_version, "engine_version"),
            "exam_id": exam_id,
        }
        if closes_as is not None:
            checks.one_of(closes_as, ("done", "abandoned"), "closes_as")
        with writing(self.engine) as connection:
            exam = exams.exam_to_extend(connection, exam_id, expected)
            if closes_as is not None:
                if exam.state in ("done", "abandoned"):
                    raise StoreConflict(f"{{exam}} is already {exam.state}", exam=exam_id)
                exams.add_state(
                    connection, exam_id, closes_as, engine_version, author, "finished",
                    exam.last_number,
                )  # fmt: skip
                rows.add_audit(
                    connection, author, f"exam {closes_as}", f"exams:{exam_id}", "finished",
                    {"state": closes_as, "was": exam.state},
                )  # fmt: skip
            live = trials.live_trials(trials.trials_of(connection, [exam_id]).get(exam_id, ()))
            values["trial_numbers"] = [trial.number for trial in live]
            values["trials_sha256"] = trials.trials_sha256(live)
            return rows.to_record(ResultRecord, rows.add_row(connection, t.results, values, author))

    def results(self, exam_id: int) -> list[ResultRecord]:
        """All results of an exam as they were shown, newest last."""
        with reading(self.engine) as connection:
            rows.row_of(connection, t.exams, exam_id, "exam")
            return list(results_of(connection, [exam_id]).get(exam_id, ()))

    def newest_results(self, exam_ids: Collection[int]) -> dict[int, ResultRecord]:
        """The newest result of each of these exams; one without is left out."""
        with reading(self.engine) as connection:
            found = results_of(connection, sorted(exam_ids))
        return {exam_id: of_exam[-1] for exam_id, of_exam in found.items()}
