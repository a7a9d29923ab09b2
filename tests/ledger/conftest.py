"""The ledger's databases: SQLite in a file of the test's own, and PostgreSQL when BENCH_TEST_POSTGRESQL names a server.

The server's user must be allowed to create databases: the tests use some of their own, and drop them.
"""

import os
import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine, make_url

from bench_proxy.ledger.database import migrate, open_engines
from bench_proxy.ledger.schema import metadata
from bench_proxy.ledger.store import SqlLedger

POSTGRESQL = os.environ.get("BENCH_TEST_POSTGRESQL", "")
DATABASES = ["sqlite", "postgresql"] if POSTGRESQL else ["sqlite"]

Open = Callable[..., Awaitable[SqlLedger]]


@contextmanager
def database_of_ours() -> Iterator[str]:
    """A new database on the server; its URL."""
    server = make_url(POSTGRESQL).set(drivername="postgresql+psycopg")
    name = f"bench_test_{secrets.token_hex(6)}"
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    yield server.set(drivername="postgresql", database=name).render_as_string(hide_password=False)
    with engine.connect() as connection:
        connection.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))
    engine.dispose()


@pytest.fixture(scope="session")
def emptied_database() -> Iterator[str]:
    with database_of_ours() as url:
        yield url


@pytest.fixture(scope="session")
def migrated_database() -> Iterator[str]:
    with database_of_ours() as url, engine_of(url) as engine:
        migrate(engine)
        yield url


@pytest.fixture(params=DATABASES)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without any table."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/bench.db"
    database: str = request.getfixturevalue("emptied_database")
    with engine_of(database) as engine, engine.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA IF EXISTS bench CASCADE"))
    return database


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copied for each test, since migrating takes longer than most of them."""
    file = tmp_path_factory.mktemp("ledger") / "bench.db"
    with engine_of(f"sqlite:///{file}") as engine:
        migrate(engine)
    return file


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with the ledger's tables and without a row."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_file"), tmp_path / "bench.db")
        return f"sqlite:///{tmp_path}/bench.db"
    database: str = request.getfixturevalue("migrated_database")
    with engine_of(database) as engine, engine.begin() as connection:
        connection.execute(sa.text(f"TRUNCATE {', '.join(metadata.tables)}"))
    return database


@contextmanager
def engine_of(url: str) -> Iterator[Engine]:
    """The ledger's own engine for writing."""
    writing, reading = open_engines(url)
    try:
        yield writing
    finally:
        for engine in (writing, reading):
            engine.dispose()


@pytest.fixture
async def open_ledger(url: str) -> AsyncIterator[Open]:
    """Opens ledgers over the same database; each is closed at the end."""
    opened: list[SqlLedger] = []

    async def open_one(content: str = "full") -> SqlLedger:
        opened.append(await SqlLedger.open(url, lambda: content))
        return opened[-1]

    yield open_one
    for ledger in opened:
        await ledger.close()


@pytest.fixture
async def ledger(open_ledger: Open) -> SqlLedger:
    return await open_ledger()
