"""Running the cases of a study: on local cores or a Dask cluster, and on from where it stopped.

Cases run in any order and anywhere, and give the same rows. Every finished case is a file of its
own, written whole or not at all: a killed study goes on where it was.
"""

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from earshift.engine.refusal import Refusal
from earshift.studies.case import Case, Row

if TYPE_CHECKING:
    import polars as pl


def run_study(
    cases: Sequence[Case],
    out: Path,
    jobs: int = 1,
    cluster: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> "pl.DataFrame":
    """Run what is missing and return all rows, in the order of the cases."""
    if not cases:
        raise Refusal("a study needs at least one case: name a class, a strategy, a protocol")
    if len({case.key for case in cases}) != len(cases):
        raise Refusal("the same case is given twice, which would count it twice")
    parts = out / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    paths = {case.key: parts / f"{case.key}.parquet" for case in cases}
    missing = [case for case in cases if not paths[case.key].exists()]
    done = len(cases) - len(missing)
    progress(done, len(cases))
    start = time.monotonic()
    with closing(_results(missing, jobs, cluster)) as results:
        for case, rows in results:
            _write_whole(frame_of(rows, case.columns), paths[case.key])
            done += 1
            progress(done, len(cases))
    if missing:
        where = f"the cluster at {cluster}" if cluster else f"{jobs} local processes"
        _add_effort(out, len(missing), time.monotonic() - start, where)
    import polars as pl

    frame = pl.concat([pl.read_parquet(paths[case.key]) for case in cases])
    _write_whole(frame, out / "tones.parquet")
    return frame


def _add_effort(out: Path, cases: int, seconds: float, where: str) -> None:
    """Remember how long the study took; a resumed one adds a line."""
    with (out / "effort.txt").open("a", encoding="utf-8") as file:
        file.write(f"{cases} cases in {seconds:.0f} s on {where}\n")


def effort_of(out: Path) -> str:
    """How long the study took, over all runs that were needed."""
    path = out / "effort.txt"
    return "; ".join(path.read_text(encoding="utf-8").splitlines()) if path.exists() else ""


def frame_of(rows: list[Row], columns: tuple[str, ...]) -> "pl.DataFrame":
    """Rows as a table."""
    import polars as pl

    return pl.DataFrame(rows, schema=list(columns), orient="row", infer_schema_length=None)


def _write_whole(frame: "pl.DataFrame", path: Path) -> None:
    """Write a Parquet file that is there whole or not at all, whenever the process dies."""
    partial = path.with_suffix(f".{os.getpid()}.partial")
    frame.write_parquet(partial)
    os.replace(partial, path)


def _results(
    cases: Sequence[Case], jobs: int, cluster: str | None
) -> Generator[tuple[Case, list[Row]], None, None]:
    if not cases:
        return
    if cluster is not None:
        yield from _on_cluster(cases, cluster)
    elif jobs == 1:
        for case in cases:
            yield case, case.rows()
    else:
        from joblib import Parallel, delayed

        # Worker processes are the parallelism: joblib keeps their linear algebra to one thread.
        pool = Parallel(n_jobs=jobs, return_as="generator_unordered")
        yield from pool(delayed(_case_and_rows)(case) for case in cases)


def _case_and_rows(case: Case) -> tuple[Case, list[Row]]:
    return case, case.rows()


def _rows(case: Case) -> list[Row]:
    return case.rows()


def _on_cluster(cases: Sequence[Case], address: str) -> Iterator[tuple[Case, list[Row]]]:
    try:
        from distributed import Client
        from distributed import as_completed as as_gathered
    except ImportError:
        raise Refusal("a cluster needs more packages: pip install 'earshift[cluster]'") from None
    try:
        client = Client(address, timeout="10s")
    except (OSError, ValueError, TimeoutError) as error:
        raise Refusal(f"no Dask scheduler answers at {address!r}: {error}") from None
    with client:
        futures = client.map(_rows, cases, key=[f"earshift-{case.key}" for case in cases])
        by_key = {future.key: case for future, case in zip(futures, cases, strict=True)}
        for future in as_gathered(futures):
            try:
                if future.status != "finished":
                    reason = future.exception() if future.status == "error" else future.status
                    raise Refusal(f"the cluster at {address} lost a case: {reason}")
                found = future.result()
            except OSError as error:  # the scheduler went away at this very moment
                raise Refusal(f"the cluster at {address} does not answer: {error}") from None
            yield by_key[future.key], found
