"""The database is private, durable, and brought up to date by whoever comes first."""

import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Engine

from bench_proxy.ledger import database
from bench_proxy.ledger.database import HEAD, migrate, open_engines
from bench_proxy.ledger.schema import metadata

MIGRATIONS = Path(database.__file__).parent / "migrations"
TABLES = {"alembic_version", "panels", "seats", "verdicts", "picks", "sums", "wins", "facts"}


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


@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression-based index")
def test_the_migrations_make_the_tables_of_the_schema(empty_url: str) -> None:
    with engines(empty_url) as (writer, _):
        migrate(writer)
        with writer.connect() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, metadata) == []


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


def test_a_migration_that_fails_leaves_nothing_half_made(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with engines(empty_url) as (writer, reader):
        upgrade = database._upgrade

        def broken(connection: sa.Connection) -> None:
            upgrade(connection)
            raise RuntimeError("the power is gone")

        monkeypatch.setattr(database, "_upgrade", broken)
        with pytest.raises(RuntimeError):
            migrate(writer)
        assert tables(reader) == set()
        monkeypatch.undo()
        migrate(writer)
        assert tables(reader) == TABLES


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
