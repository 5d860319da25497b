"""A simulated person: a screen to try without headphones. Nothing is stored."""

from fastapi import APIRouter

from earshift.web import live_models as lm
from earshift.web import models as m
from earshift.web import trying
from earshift.web.identity import Examiner

router = APIRouter(prefix="/api")


@router.get("/try/choices")
def try_choices(_: Examiner) -> m.TryChoices:
    return m.TryChoices(**trying.choices())


@router.post("/try")
def try_it(wanted: m.Try, _: Examiner) -> lm.Live:
    """A simulated person after so many tones."""
    return trying.after(**wanted.model_dump())
