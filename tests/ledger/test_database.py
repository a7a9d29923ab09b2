"""The database is private, durable, and brought up to date by whoever comes first."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Engine

from bench_proxy.ledger import database
from bench_proxy.ledger.database import HEAD, migrate, open_engines
from bench_proxy.ledger.schema import metadata

MIGRATIONS = Path(database.__file__).parent / "migrations"
TABLES = {
    "alembic_version",
    "panels",
    "seats",
    "verdicts",
    "picks",
    "sums",
    "wins",
    "facts",
    "conversations",
    "turns",
} | {"bench_keys", "key_days", "key_holds"}


@contextmanager
def engines(url: str) -> Iterator[tuple[Engine, Engine]]:
    opened = open_engines(url)
    try:
        yield opened
    finally:
        for engine in opened:
            engine.dispose()


def tables(engine: Engine) -> set[str]:
    return set(sa.inspect(engine).get_table_names())


def version(engine: Engine) -> str | None:
    with engine.connect() as connection:
        return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()


# Opening


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:"])
def test_a_ledger_in_memory_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"needs a file: sqlite:///bench\.db"):
        open_engines(url)


def test_a_file_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        open_engines(f"sqlite:///{tmp_path}/file/bench.db")


def test_the_file_is_made_with_its_folders_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "bench.db"
    with engines(f"sqlite:///{file}") as (writer, _):
        migrate(writer)
        # The journals hold the same rows: they are there as long as somebody has the file open.
        for part in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
            assert stat.S_IMODE(part.stat().st_mode) == 0o600, part


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777], ids=oct)
def test_what_may_be_read_by_whom_does_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    file = tmp_path / "bench.db"
    before = os.umask(umask)
    try:
        with engines(f"sqlite:///{file}") as (writer, _):
            migrate(writer)
            modes = [stat.S_IMODE(part.stat().st_mode) for part in sorted(tmp_path.iterdir())]
    finally:
        os.umask(before)
    assert modes == [0o600] * 3


def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "bench.db"
    file.touch()
    file.chmod(0o640)
    with engines(f"sqlite:///{file}") as (writer, _):
        migrate(writer)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_file_that_is_there_keeps_what_it_holds(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bench.db"
    with engines(url) as (writer, _):
        migrate(writer)
    with engines(url) as (_, reader):
        assert tables(reader) == TABLES


@pytest.mark.parametrize("which", [0, 1], ids=["writer", "reader"])
def test_sqlite_keeps_a_journal_that_readers_do_not_wait_for_and_loses_no_commit(tmp_path: Path, which: int) -> None:
    with engines(f"sqlite:///{tmp_path}/bench.db") as opened, opened[which].connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        full = 2
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == full


def test_a_transaction_of_the_writer_has_the_lock_from_its_beginning(tmp_path: Path) -> None:
    with engines(f"sqlite:///{tmp_path}/bench.db") as (writer, reader), writer.connect() as connection:
        connection.execute(sa.select(1))
        with reader.connect() as other:
            other.exec_driver_sql("PRAGMA busy_timeout=0")
            with pytest.raises(sa.exc.OperationalError, match="locked"):
                other.exec_driver_sql("CREATE TABLE mine (x)")


def test_readers_read_while_a_write_goes_on(empty_url: str) -> None:
    with engines(empty_url) as (writer, reader):
        migrate(writer)
        with writer.begin() as connection:
            connection.execute(metadata.tables["sums"].insert(), SUM)
            with reader.connect() as other:
                assert other.execute(sa.select(metadata.tables["sums"])).all() == []


SUM = {"collection": "", "owner": "", "alias": "gpt", "shape": "general"}


# Migrations


def test_the_newest_migration_is_the_one_that_is_checked_for() -> None:
    settings = Config()
    settings.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(settings).get_current_head() == HEAD


def migrated(engine: Engine, revision: str = HEAD) -> None:
    """By the migrations alone, as a ledger that was made when that revision was the newest."""
    settings = Config()
    settings.set_main_option("script_location", str(MIGRATIONS))
    with engine.begin() as connection:
        settings.attributes["connection"] = connection
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text("CREATE SCHEMA IF NOT EXISTS bench"))
        command.upgrade(settings, revision)


def made(engine: Engine) -> dict[str, object]:
    """All that a database knows of its tables."""
    inspector = sa.inspect(engine)
    return {
        table: (
            {c["name"]: (str(c["type"]), c["nullable"], c["default"]) for c in inspector.get_columns(table)},
            inspector.get_pk_constraint(table)["constrained_columns"],
            sorted((i["name"], i["expressions"] if "expressions" in i else i["column_names"], i["unique"])
                   for i in inspector.get_indexes(table)),
            sorted(u["column_names"] for u in inspector.get_unique_constraints(table)),
        )
        for table in inspector.get_table_names()
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression-based index")
def test_a_new_ledger_is_made_as_the_migrations_make_it(empty_url: str) -> None:
    with engines(empty_url) as (writer, _):
        migrated(writer)
        by_migrations, indexes = made(writer), set(indexes_of(writer))
        with writer.begin() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, metadata) == []
            metadata.drop_all(connection)
            connection.execute(sa.text("DROP TABLE alembic_version"))
        migrate(writer)
        assert made(writer) == by_migrations
        assert set(indexes_of(writer)) == indexes


def indexes_of(engine: Engine) -> list[tuple[str, str]]:
    """Those over expressions too, which SQLAlchemy does not read back from SQLite."""
    of = {
        "sqlite": "SELECT name, replace(replace(sql, char(10), ''), '\"', '') FROM sqlite_master WHERE sql IS NOT NULL "
        "AND type = 'index'",
        "postgresql": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'bench'",
    }
    with engine.connect() as connection:
        return [(row[0], row[1]) for row in connection.execute(sa.text(of[engine.dialect.name]))]


def test_an_empty_database_is_brought_up_to_the_newest_migration(empty_url: str) -> None:
    with engines(empty_url) as (writer, reader):
        migrate(writer)
        assert version(reader) == HEAD
        assert tables(reader) == TABLES


def test_migrating_again_changes_nothing(empty_url: str) -> None:
    with engines(empty_url) as (writer, reader):
        migrate(writer)
        with writer.begin() as connection:
            connection.execute(metadata.tables["sums"].insert(), SUM)
        migrate(writer)
        with reader.connect() as connection:
            assert len(connection.execute(sa.select(metadata.tables["sums"])).all()) == 1


def test_a_database_that_is_newer_than_this_program_is_used_as_it_is(
    empty_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with engines(empty_url) as (writer, reader):
        migrate(writer)
        with writer.begin() as connection:
            connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
        migrate(writer)
        assert version(reader) == "9999"
    assert "9999" in caplog.text


@pytest.mark.parametrize("step", ["_create", "_upgrade"])
def test_a_migration_that_fails_leaves_nothing_half_made(
    empty_url: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engines(empty_url) as (writer, reader):
        if step == "_upgrade":
            migrated(writer, "0001")
        before = tables(reader)
        done = getattr(database, step)

        def broken(connection: sa.Connection) -> None:
            done(connection)
            raise RuntimeError("the power is gone")

        monkeypatch.setattr(database, step, broken)
        with pytest.raises(RuntimeError):
            migrate(writer)
        assert tables(reader) == before
        monkeypatch.undo()
        migrate(writer)
        assert (tables(reader), version(reader)) == (TABLES, HEAD)


OLD_SEAT = {
    "panel": "p1", "number": 0, "at_ms": 1, "owner": "key-1", "collection": "core", "shape": "code", "kind": "member",
    "mask": "", "status": "ok", "late": False, "seconds": 1.0, "answer": "Yes.", "note": "", "judged_by": "",
}  # fmt: skip
OLD_SUM = {
    "collection": "core", "owner": "key-1", "alias": "gpt", "shape": "code", "seated": 3, "answered": 3, "empty": 0,
    "failed": 0, "late": 0, "useful": 1, "not_useful": 1, "preferred": 0, "not_preferred": 0, "last_seated_ms": 1,
    "last_judged_ms": 1,
}  # fmt: skip


def insert(engine: Engine, table: str, *rows: dict[str, object]) -> None:
    """As a program does that knows of these columns alone."""
    with engine.begin() as connection:
        for row in rows:
            columns = [sa.column(name) for name in row]
            connection.execute(sa.table(table, *columns).insert(), row)


def test_a_ledger_of_0001_keeps_its_rows_and_its_claims_are_counted(empty_url: str) -> None:
    with engines(empty_url) as (writer, _):
        migrated(writer, "0001")
        assert "turns" not in tables(writer)
        judged = [(True, '["a", "b"]', '["c"]'), (False, "[]", '["d"]'), (None, '["withdrawn"]', "[]")]
        odd = [(True, "garbage", "7")]
        for n, (useful, real, false) in enumerate(judged + odd):
            row = {**OLD_SEAT, "call": f"p1.member{n}", "alias": "gpt", "useful": useful, "real": real, "false": false}
            insert(writer, "seats", row)
        insert(
            writer, "seats", {**OLD_SEAT, "call": "p1.x", "alias": "new", "useful": True, "real": "[]", "false": "[]"}
        )
        everything = {**OLD_SUM, "collection": "", "owner": "", "seated": 9}
        insert(writer, "sums", OLD_SUM, everything, {**OLD_SUM, "shape": "prose"})
        migrate(writer)
        with writer.connect() as connection:
            sums = metadata.tables["sums"]
            kept = {(row["collection"], row["shape"]): row for row in connection.execute(sa.select(sums)).mappings()}
            assert connection.execute(sa.text("SELECT count(*) FROM seats")).scalar() == 5
        for key, claims in ((("core", "code"), (2, 2)), (("", "code"), (2, 2)), (("core", "prose"), (0, 0))):
            assert (kept[key]["claims_held"], kept[key]["claims_failed"]) == claims, key
        assert (kept["core", "code"]["seated"], kept["", "code"]["seated"]) == (3, 9)
        assert {row["turns"] for row in kept.values()} == {0}


def test_a_program_of_0001_goes_on_counting_in_a_newer_ledger(empty_url: str) -> None:
    with engines(empty_url) as (writer, _):
        migrate(writer)
        insert(writer, "sums", OLD_SUM)
        with writer.connect() as connection:
            (row,) = connection.execute(sa.select(metadata.tables["sums"])).mappings()
        assert (row["seated"], row["claims_held"], row["claims_failed"], row["turns"], row["failovers"]) == (
            3,
            0,
            0,
            0,
            0,
        )


MIGRATES = """
import sys
from bench_proxy.ledger.database import migrate, open_engines
print("ready", flush=True)
sys.stdin.readline()
engines = open_engines(sys.argv[1])
migrate(engines[0])
for engine in engines:
    engine.dispose()
"""


def test_processes_that_start_together_migrate_once_and_none_fails(empty_url: str) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", MIGRATES, empty_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    ends = [(process.communicate(timeout=60)[1], process.returncode) for process in processes]
    assert ends == [("", 0)] * 3
    with engines(empty_url) as (_, reader):
        assert version(reader) == HEAD
