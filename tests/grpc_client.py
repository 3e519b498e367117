#!/usr/bin/env python3
"""Launches a job and follows it to its end, knowing of the server only what reflection tells.

    python tests/grpc_client.py HOST:PORT [TOKEN]

Needs grpcio and grpcio-reflection, and no code made of our .proto files. Prints each state that it sees,
the final one last and alone on its line; exit status 0 if that is JOB_STATE_SUCCEEDED, else 1.
"""

import sys

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)


class TokenForAll(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Reflection's own client takes no metadata, so that every call gets the token here."""

    def __init__(self, token):
        self.token = token

    def _with_token(self, call, details, request):
        metadata = [*(details.metadata or ()), ("authorization", f"Bearer {self.token}")]
        return call(details._replace(metadata=metadata), request)

    intercept_unary_unary = _with_token
    intercept_unary_stream = _with_token
    intercept_stream_stream = _with_token


class Service:
    """The methods of a service by their names, with requests made from keywords."""

    def __init__(self, channel, pool, name):
        self.channel = channel
        self.described = pool.FindServiceByName(name)

    def __getattr__(self, name):
        method = self.described.FindMethodByName(name)
        kinds = {False: self.channel.unary_unary, True: self.channel.unary_stream}
        request = GetMessageClass(method.input_type)
        call = kinds[method.server_streaming](
            f"/{self.described.full_name}/{name}",
            request_serializer=request.SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        return lambda **fields: call(request(**fields), timeout=60)


def main(address, token=None):
    channel = grpc.insecure_channel(address)
    if token:
        channel = grpc.intercept_channel(channel, TokenForAll(token))
    reflection = ProtoReflectionDescriptorDatabase(channel)
    services = reflection.get_services()
    assert "steadfast.v1.Jobs" in services, services
    jobs = Service(channel, DescriptorPool(reflection), "steadfast.v1.Jobs")

    launched = jobs.LaunchJob(
        name="from-reflection",
        # Fails the first time: what it prints last says that it was retried.
        entrypoint={"script": 'test "$STEADFAST_ATTEMPT" -ge 2'},
        resources={"cpu": 0.1, "memory": "16m"},
        retry={"max_retries_failure": 3, "initial_retry_delay_ms": 10},
    )
    final = None
    for status in jobs.WatchJob(job_id=launched.job_id):
        final = status
        print(f"{status.job_id} attempt {status.current_attempt_id}: {state_name(status)}")
    again = jobs.GetJobStatus(job_id=launched.job_id).job
    assert again == final, (again, final)
    listed = jobs.ListJobs(name="from-reflection").jobs
    assert launched.job_id in [job.job_id for job in listed], listed
    try:
        jobs.LaunchJob(name="from-reflection", retry={"max_retries_failure": -1})
    except grpc.RpcError as refused:
        assert refused.code() == grpc.StatusCode.INVALID_ARGUMENT, refused
        assert "retry.max_retries_failure" in refused.details(), refused
    else:
        raise AssertionError("a negative number of retries was taken")
    print(state_name(final))
    return 0 if state_name(final) == "JOB_STATE_SUCCEEDED" else 1


def state_name(status):
    return status.DESCRIPTOR.fields_by_name["state"].enum_type.values_by_number[status.state].name


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
