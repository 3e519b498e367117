"""DBOS: a library whose state is in PostgreSQL, as initdb makes it (fsync and synchronous_commit on). Workflows are async
functions started in this one process; the server is PostgreSQL."""

import asyncio
import os
import sys

import psycopg
from dbos import DBOS, SetEnqueueOptions
from measure import BACKOFF, HOUR, run_all

seen = None


@DBOS.workflow()
async def nothing(job):
    return seen.call(job)


@DBOS.step(retries_allowed=True, interval_seconds=BACKOFF, max_attempts=3, backoff_rate=1.0)
async def fails_twice(job):
    return seen.call(job)


@DBOS.workflow()
async def retried(job):
    return await fails_twice(job)


class Peer:
    name = "dbos"
    databases = 0

    async def start(self, folder, in_flight, now_seen):
        global seen
        seen = now_seen
        self.workflow = retried if seen.fails else nothing
        Peer.databases += 1
        url = f"{os.environ['DATABASE_URL']}/dbos_{Peer.databases}"
        with psycopg.connect(f"{os.environ['DATABASE_URL']}/postgres", autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE dbos_{Peer.databases}")
        DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})
        DBOS.launch()
        await DBOS.register_queue_async("later")

    async def submit(self, job):
        return await DBOS.start_workflow_async(self.workflow, job)

    async def submit_and_wait(self, job):
        handle = await self.submit(job)
        assert await handle.get_result() == job

    async def delay(self, job):
        with SetEnqueueOptions(delay_seconds=HOUR):
            await DBOS.enqueue_workflow_async("later", self.workflow, job)

    def server(self):
        return int(os.environ["POSTGRES"])

    async def stop(self):
        await asyncio.to_thread(DBOS.destroy)


asyncio.run(run_all(Peer(), jobs_per=10, delayed_per=10, wanted=sys.argv[1:]))
