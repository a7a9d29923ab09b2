"""Opens the ledger's database: engines, SQLite's pragmas, migrations under a lock."""

import logging
import os
import threading
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine, make_url

from bench_proxy.ledger.schema import metadata

log = logging.getLogger("bench_proxy")

HEAD = "0004"
"""The newest migration; checked without importing Alembic, which is only needed when the database is older."""

# Numbers that all processes of ours lock in PostgreSQL.
MIGRATION_LOCK = 0x62656E6368  # "bench"
WRITE_LOCK = 0x7772697465  # "write"

# Alembic keeps the migration that runs in its module: two ledgers of one process are not made at the same time.
_MIGRATING = threading.Lock()


def open_engines(url: str) -> tuple[Engine, Engine]:
    """The writer's engine, whose transactions take the write lock at once, and the readers'.

    Creates the SQLite file for its owner alone. Raises sqlalchemy.exc.SQLAlchemyError or OSError.
    """
    target = make_url(url)
    if target.get_backend_name() == "sqlite":
        _create_private(target)
        writer, reader = (_sqlite(target, begin) for begin in ("BEGIN IMMEDIATE", "BEGIN"))
    else:
        writer, reader = _postgresql(target), _postgresql(target)
        event.listen(writer, "begin", _lock_out_other_writers)
    return writer, reader


def migrate(engine: Engine) -> None:
    """Bring the schema up to `HEAD`, or make it; processes that start together wait for one another.

    A database that is newer than this program is left alone: one release beside the next one goes on working.
    """
    if _revision(engine) == HEAD:
        return
    with _MIGRATING, engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
            connection.execute(sa.text("CREATE SCHEMA IF NOT EXISTS bench"))
        if sa.inspect(connection).get_table_names():
            _upgrade(connection)
        else:
            _create(connection)


def _create(connection: Connection) -> None:
    """What all migrations come to, without Alembic, which is slow to import and large."""
    metadata.create_all(connection)
    named = sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc")
    version = sa.Table("alembic_version", sa.MetaData(), sa.Column("version_num", sa.String(32)), named)
    version.create(connection)
    connection.execute(version.insert(), {"version_num": HEAD})


def _revision(engine: Engine) -> str | None:
    try:
        with engine.connect() as connection:
            return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    except sa.exc.DBAPIError:
        return None


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    settings = Config()
    settings.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    settings.attributes["connection"] = connection
    current = MigrationContext.configure(connection).get_current_revision()
    known = {script.revision for script in ScriptDirectory.from_config(settings).walk_revisions()}
    if current is not None and current not in known:
        log.warning("the ledger's schema is %s, newer than this program's %s; using it as it is", current, HEAD)
        return
    command.upgrade(settings, "head")


BUSY_SECONDS = 8
"""How long SQLite waits for another process's transaction."""


def _create_private(target: URL) -> None:
    """The ledger holds prompts and answers: only its owner may read the file, and its journals, which SQLite makes with
    the mode that the file has. One that is there already keeps its own.
    """
    if target.database in {None, "", ":memory:"}:
        raise ValueError("the ledger needs a file: sqlite:///bench.db")
    path = Path(str(target.database))
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return
    path.chmod(0o600)  # an umask may have taken rights from its owner too


def _sqlite(target: URL, begin: str) -> Engine:
    engine = sa.create_engine(
        target,
        connect_args={"check_same_thread": False, "timeout": BUSY_SECONDS},
        paramstyle="named",  # as PostgreSQL's is: rows are mappings for both
    )

    @event.listens_for(engine, "connect")
    def configure(connection, _record) -> None:  # type: ignore[no-untyped-def]
        # The driver's own transaction handling is switched off: it would begin a transaction too late to lock.
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _postgresql(target: URL) -> Engine:
    return sa.create_engine(
        target.set(drivername="postgresql+psycopg"),
        pool_pre_ping=True,
        pool_size=4,
        # A server that does not answer any more must not hold panels: each wait has an end.
        connect_args={
            "options": "-c search_path=bench -c statement_timeout=15000",
            "connect_timeout": 5,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 2,
            "tcp_user_timeout": 15_000,
        },
    )


def _lock_out_other_writers(connection: Connection) -> None:
    """As SQLite's BEGIN IMMEDIATE does. A commit holds many writes; two of them that change the same sums in another
    order would wait for each other for ever.
    """
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITE_LOCK})")
