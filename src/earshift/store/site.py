"""What a site has settled for itself, and a reviewer's last word on a verdict."""

from typing import Any

from sqlalchemy import func, select

from earshift.acts import Closing
from earshift.records import SiteSetting
from earshift.store import checks, exams, rows, texts
from earshift.store import tables as t
from earshift.store.database import reading, writing
from earshift.store.errors import StoreConflict
from earshift.store.rows import Part


class Site(Part):
    """The store's calls about settings and closed verdicts."""

    def set_site_setting(self, name: str, value: Any, *, author: str, reason: str) -> SiteSetting:
        """A new value from now on; earlier ones stay as history."""
        author = checks.text(author, "author")
        values = {
            "name": checks.text(name, "name"),
            "value": checks.plain({"value": value}, "value")["value"],
            "at": checks.now(),
            "author": author,
            "reason": checks.text(reason, "reason"),
        }
        with writing(self.engine) as connection:
            new = rows.add_row(
                connection, t.site_settings, values, author, values["reason"], {"value": value}
            )
            return rows.to_record(SiteSetting, new)

    def site_settings(self) -> dict[str, SiteSetting]:
        """The newest value of everything that was ever set, by name."""
        s = t.site_settings
        newest = select(func.max(s.c.id)).group_by(s.c.name)
        with reading(self.engine) as connection:
            found = connection.execute(select(s).where(s.c.id.in_(newest)).order_by(s.c.name))
            return {row.name: rows.to_record(SiteSetting, row) for row in found}

    def close_verdict(
        self,
        exam_id: int,
        *,
        author: str,
        reason: str,
        closed: bool = True,
        ears: str = "",
        after: int | None = None,
    ) -> Closing:
        """Nothing more has to be done about an exam's verdict, or about that of these ears, by
        somebody who may say so. With `after`, the id of the last word on it that they knew (0: of
        none), it is refused when there is a later one."""
        author, reason = checks.text(author, "author"), checks.text(reason, "reason")
        values = {
            "exam_id": checks.as_id(exam_id, "exam"),
            "closed": bool(closed),
            "at": checks.now(),
            "author": author,
            "reason": reason,
            "ears": checks.text(ears, "ears", blank=True),
        }
        with writing(self.engine) as connection:
            exams.exam_to_extend(connection, exam_id)
            newest = select(func.max(t.closings.c.id)).where(t.closings.c.exam_id == exam_id)
            if after is not None and (connection.execute(newest).scalar_one() or 0) != after:
                raise StoreConflict(
                    "the verdict of {exam} was closed or reopened just now", exam=exam_id
                )
            details = {"exam": exam_id, "closed": bool(closed), **({"ears": ears} if ears else {})}
            new = rows.add_row(connection, t.closings, values, author, details=details)
            return rows.to_record(Closing, new)

    def closings(self, exam_id: int) -> list[Closing]:
        """What reviewers said of an exam's verdict, newest last."""
        of_exam = t.closings.c.exam_id == checks.as_id(exam_id, "exam")
        query = select(*texts.columns(t.closings)).where(of_exam)
        with reading(self.engine) as connection:
            return rows.to_records(Closing, connection.execute(query.order_by(t.closings.c.id)))
