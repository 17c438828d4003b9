"""`netloom apiserver` for the kinds of the store tests: the same API, TLS and sqlite store, as a process of its own.

    python -m tests.store.apiserver FOLDER

Listens on a port of its choice; when FOLDER/admin.kubeconfig is there, it answers.
"""

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

from netloom.front.api.app import Api
from netloom.front.api.auth.roles import RoleAuthorizer
from netloom.front.api.auth.tokens import TokenFile
from netloom.front.api.http.server import Server
from netloom.model.kind import Registry
from netloom.run import frontends, process
from netloom.run.access.credentials import Directory
from netloom.store.sqlite.store import SqliteStore
from tests.store.backends import KINDS, QUEUE, WINDOW


async def serve(folder: Path) -> None:
    """Serve until stopped."""
    listener = frontends.listen("127.0.0.1", 0)
    directory = Directory(folder)
    directory.make()
    directory.prepare(hosts=["127.0.0.1"], now=datetime.now(UTC))
    identity = frontends.of_directory(directory)
    store = await SqliteStore.open(folder / "store.db", kinds=KINDS, window_changes=WINDOW, queue_length=QUEUE)
    known = TokenFile(directory.tokens)
    api = Api(store, authenticator=known, authorizer=RoleAuthorizer(store), kinds=Registry(KINDS))
    server = Server(api, listener, frontends.tls(identity), turns=api.turns)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve())
        directory.write_kubeconfig(frontends.url("127.0.0.1", listener))


if __name__ == "__main__":
    sys.exit(process.run(serve(Path(sys.argv[1]))))
