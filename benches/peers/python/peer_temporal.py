"""Temporal: its development server on a SQLite file (WAL, every commit synced), and a Python worker in this process. A job
is a workflow of one activity; workflows are not sandboxed, which spares the worker time."""

import asyncio
import datetime
import os
import subprocess
import sys

from measure import BACKOFF, HOUR, free_port, run_all
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

seen = None
MINUTE = datetime.timedelta(minutes=1)
RETRY = RetryPolicy(initial_interval=datetime.timedelta(seconds=BACKOFF), backoff_coefficient=1.0, maximum_attempts=3)


@activity.defn
async def nothing(job: int) -> int:
    return seen.call(job)


@workflow.defn
class Job:
    @workflow.run
    async def run(self, job: int) -> int:
        return await workflow.execute_activity(nothing, job, start_to_close_timeout=MINUTE, retry_policy=RETRY)


class Peer:
    name = "temporal"

    async def start(self, folder, in_flight, now_seen):
        global seen
        seen = now_seen
        port = free_port()
        self.process = subprocess.Popen(
            [os.environ["TEMPORAL"], "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port),
             "--db-filename", folder / "temporal.db", "--sqlite-pragma", "journal_mode=WAL",
             "--sqlite-pragma", "synchronous=2", "--log-level", "never"],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        while True:
            try:
                self.client = await Client.connect(f"127.0.0.1:{port}")
                break
            except (RuntimeError, RPCError):
                await asyncio.sleep(0.1)
        worker = Worker(
            self.client, task_queue="bench", workflows=[Job], activities=[nothing],
            workflow_runner=UnsandboxedWorkflowRunner(), max_concurrent_activities=256, max_concurrent_workflow_tasks=256,
        )  # fmt: skip
        self.worker = asyncio.create_task(worker.run())

    async def submit(self, job, **options):
        return await self.client.start_workflow(Job.run, job, id=f"job-{job}", task_queue="bench", **options)

    async def submit_and_wait(self, job):
        handle = await self.submit(job)
        assert await handle.result() == job

    async def delay(self, job):
        await self.submit(job, start_delay=datetime.timedelta(seconds=HOUR))

    def server(self):
        return self.process.pid

    async def stop(self):
        self.worker.cancel()
        await asyncio.wait([self.worker])
        self.process.terminate()
        try:
            await asyncio.to_thread(self.process.wait, 10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


asyncio.run(run_all(Peer(), jobs_per=20, delayed_per=50, wanted=sys.argv[1:]))
