from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    JOB_STATE_PENDING: _ClassVar[JobState]
    JOB_STATE_RUNNING: _ClassVar[JobState]
    JOB_STATE_SUCCEEDED: _ClassVar[JobState]
    JOB_STATE_FAILED: _ClassVar[JobState]
    JOB_STATE_KILLED: _ClassVar[JobState]
    JOB_STATE_WORKER_FAILED: _ClassVar[JobState]
    JOB_STATE_UNSCHEDULABLE: _ClassVar[JobState]
    JOB_STATE_PAUSED: _ClassVar[JobState]
    JOB_STATE_PARTIAL: _ClassVar[JobState]
JOB_STATE_UNSPECIFIED: JobState
JOB_STATE_PENDING: JobState
JOB_STATE_RUNNING: JobState
JOB_STATE_SUCCEEDED: JobState
JOB_STATE_FAILED: JobState
JOB_STATE_KILLED: JobState
JOB_STATE_WORKER_FAILED: JobState
JOB_STATE_UNSCHEDULABLE: JobState
JOB_STATE_PAUSED: JobState
JOB_STATE_PARTIAL: JobState

class LaunchJobRequest(_message.Message):
    __slots__ = ("name", "entrypoint", "resources", "environment", "ports", "scheduling_timeout_seconds", "timeout_ms", "labels", "idempotency_key", "files", "retry")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENTRYPOINT_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULING_TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    name: str
    entrypoint: Entrypoint
    resources: ResourceSpec
    environment: EnvironmentConfig
    ports: _containers.RepeatedScalarFieldContainer[str]
    scheduling_timeout_seconds: int
    timeout_ms: int
    labels: _containers.ScalarMap[str, str]
    idempotency_key: str
    files: _containers.RepeatedCompositeFieldContainer[AttachedFile]
    retry: RetryConfig
    def __init__(self, name: _Optional[str] = ..., entrypoint: _Optional[_Union[Entrypoint, _Mapping]] = ..., resources: _Optional[_Union[ResourceSpec, _Mapping]] = ..., environment: _Optional[_Union[EnvironmentConfig, _Mapping]] = ..., ports: _Optional[_Iterable[str]] = ..., scheduling_timeout_seconds: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ..., idempotency_key: _Optional[str] = ..., files: _Optional[_Iterable[_Union[AttachedFile, _Mapping]]] = ..., retry: _Optional[_Union[RetryConfig, _Mapping]] = ...) -> None: ...

class Entrypoint(_message.Message):
    __slots__ = ("command", "script")
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_FIELD_NUMBER: _ClassVar[int]
    command: Command
    script: str
    def __init__(self, command: _Optional[_Union[Command, _Mapping]] = ..., script: _Optional[str] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("argv",)
    ARGV_FIELD_NUMBER: _ClassVar[int]
    argv: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, argv: _Optional[_Iterable[str]] = ...) -> None: ...

class ResourceSpec(_message.Message):
    __slots__ = ("cpu", "memory")
    CPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    cpu: float
    memory: str
    def __init__(self, cpu: _Optional[float] = ..., memory: _Optional[str] = ...) -> None: ...

class EnvironmentConfig(_message.Message):
    __slots__ = ("env_vars",)
    class EnvVarsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ENV_VARS_FIELD_NUMBER: _ClassVar[int]
    env_vars: _containers.ScalarMap[str, str]
    def __init__(self, env_vars: _Optional[_Mapping[str, str]] = ...) -> None: ...

class RetryConfig(_message.Message):
    __slots__ = ("max_retries_failure", "max_retries_preemption", "initial_retry_delay_ms", "max_retry_delay_ms", "backoff_multiplier", "retry_on_exit_codes", "no_retry_on_exit_codes")
    MAX_RETRIES_FAILURE_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_PREEMPTION_FIELD_NUMBER: _ClassVar[int]
    INITIAL_RETRY_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRY_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    RETRY_ON_EXIT_CODES_FIELD_NUMBER: _ClassVar[int]
    NO_RETRY_ON_EXIT_CODES_FIELD_NUMBER: _ClassVar[int]
    max_retries_failure: int
    max_retries_preemption: int
    initial_retry_delay_ms: int
    max_retry_delay_ms: int
    backoff_multiplier: float
    retry_on_exit_codes: _containers.RepeatedScalarFieldContainer[int]
    no_retry_on_exit_codes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, max_retries_failure: _Optional[int] = ..., max_retries_preemption: _Optional[int] = ..., initial_retry_delay_ms: _Optional[int] = ..., max_retry_delay_ms: _Optional[int] = ..., backoff_multiplier: _Optional[float] = ..., retry_on_exit_codes: _Optional[_Iterable[int]] = ..., no_retry_on_exit_codes: _Optional[_Iterable[int]] = ...) -> None: ...

class LaunchJobResponse(_message.Message):
    __slots__ = ("job_id", "warnings")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    warnings: _containers.RepeatedCompositeFieldContainer[Warning]
    def __init__(self, job_id: _Optional[str] = ..., warnings: _Optional[_Iterable[_Union[Warning, _Mapping]]] = ...) -> None: ...

class Warning(_message.Message):
    __slots__ = ("code", "path", "line", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    path: str
    line: int
    message: str
    def __init__(self, code: _Optional[str] = ..., path: _Optional[str] = ..., line: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class SubmitJobRequest(_message.Message):
    __slots__ = ("file", "files", "idempotency_key")
    FILE_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    file: str
    files: _containers.RepeatedCompositeFieldContainer[AttachedFile]
    idempotency_key: str
    def __init__(self, file: _Optional[str] = ..., files: _Optional[_Iterable[_Union[AttachedFile, _Mapping]]] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class AttachedFile(_message.Message):
    __slots__ = ("path", "content", "executable")
    PATH_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    EXECUTABLE_FIELD_NUMBER: _ClassVar[int]
    path: str
    content: bytes
    executable: bool
    def __init__(self, path: _Optional[str] = ..., content: _Optional[bytes] = ..., executable: bool = ...) -> None: ...

class SubmitJobResponse(_message.Message):
    __slots__ = ("job_id", "warnings")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    warnings: _containers.RepeatedCompositeFieldContainer[Warning]
    def __init__(self, job_id: _Optional[str] = ..., warnings: _Optional[_Iterable[_Union[Warning, _Mapping]]] = ...) -> None: ...

class SubmitJobsRequest(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[NewJob]
    def __init__(self, jobs: _Optional[_Iterable[_Union[NewJob, _Mapping]]] = ...) -> None: ...

class NewJob(_message.Message):
    __slots__ = ("submit", "launch")
    SUBMIT_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_FIELD_NUMBER: _ClassVar[int]
    submit: SubmitJobRequest
    launch: LaunchJobRequest
    def __init__(self, submit: _Optional[_Union[SubmitJobRequest, _Mapping]] = ..., launch: _Optional[_Union[LaunchJobRequest, _Mapping]] = ...) -> None: ...

class SubmitJobsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[NewJobResult]
    def __init__(self, results: _Optional[_Iterable[_Union[NewJobResult, _Mapping]]] = ...) -> None: ...

class NewJobResult(_message.Message):
    __slots__ = ("job_id", "existing", "warnings", "refusal")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    EXISTING_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    existing: bool
    warnings: _containers.RepeatedCompositeFieldContainer[Warning]
    refusal: Refusal
    def __init__(self, job_id: _Optional[str] = ..., existing: bool = ..., warnings: _Optional[_Iterable[_Union[Warning, _Mapping]]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class RunJobResponse(_message.Message):
    __slots__ = ("job_id", "warnings", "job")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    warnings: _containers.RepeatedCompositeFieldContainer[Warning]
    job: JobStatus
    def __init__(self, job_id: _Optional[str] = ..., warnings: _Optional[_Iterable[_Union[Warning, _Mapping]]] = ..., job: _Optional[_Union[JobStatus, _Mapping]] = ...) -> None: ...

class GetJobStatusRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class GetJobStatusResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: JobStatus
    def __init__(self, job: _Optional[_Union[JobStatus, _Mapping]] = ...) -> None: ...

class WatchJobRequest(_message.Message):
    __slots__ = ("job_id", "end_only")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    END_ONLY_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    end_only: bool
    def __init__(self, job_id: _Optional[str] = ..., end_only: bool = ...) -> None: ...

class JobStatus(_message.Message):
    __slots__ = ("job_id", "state", "name", "exit_code", "error", "reason", "submitted_at_ms", "started_at_ms", "finished_at_ms", "worker_id", "failure_count", "preemption_count", "current_attempt_id", "attempts", "output_json", "status_json", "max_retries_failure", "max_retries_preemption", "retry_available_at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    FAILURE_COUNT_FIELD_NUMBER: _ClassVar[int]
    PREEMPTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    CURRENT_ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_JSON_FIELD_NUMBER: _ClassVar[int]
    STATUS_JSON_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_FAILURE_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_PREEMPTION_FIELD_NUMBER: _ClassVar[int]
    RETRY_AVAILABLE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    state: JobState
    name: str
    exit_code: int
    error: str
    reason: str
    submitted_at_ms: int
    started_at_ms: int
    finished_at_ms: int
    worker_id: str
    failure_count: int
    preemption_count: int
    current_attempt_id: int
    attempts: _containers.RepeatedCompositeFieldContainer[JobAttempt]
    output_json: str
    status_json: str
    max_retries_failure: int
    max_retries_preemption: int
    retry_available_at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., name: _Optional[str] = ..., exit_code: _Optional[int] = ..., error: _Optional[str] = ..., reason: _Optional[str] = ..., submitted_at_ms: _Optional[int] = ..., started_at_ms: _Optional[int] = ..., finished_at_ms: _Optional[int] = ..., worker_id: _Optional[str] = ..., failure_count: _Optional[int] = ..., preemption_count: _Optional[int] = ..., current_attempt_id: _Optional[int] = ..., attempts: _Optional[_Iterable[_Union[JobAttempt, _Mapping]]] = ..., output_json: _Optional[str] = ..., status_json: _Optional[str] = ..., max_retries_failure: _Optional[int] = ..., max_retries_preemption: _Optional[int] = ..., retry_available_at_ms: _Optional[int] = ...) -> None: ...

class JobAttempt(_message.Message):
    __slots__ = ("attempt_id", "worker_id", "state", "exit_code", "signal", "error", "started_at_ms", "finished_at_ms", "is_worker_failure", "outcome")
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    IS_WORKER_FAILURE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    attempt_id: int
    worker_id: str
    state: JobState
    exit_code: int
    signal: int
    error: str
    started_at_ms: int
    finished_at_ms: int
    is_worker_failure: bool
    outcome: str
    def __init__(self, attempt_id: _Optional[int] = ..., worker_id: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., exit_code: _Optional[int] = ..., signal: _Optional[int] = ..., error: _Optional[str] = ..., started_at_ms: _Optional[int] = ..., finished_at_ms: _Optional[int] = ..., is_worker_failure: bool = ..., outcome: _Optional[str] = ...) -> None: ...

class TerminateJobRequest(_message.Message):
    __slots__ = ("job_id", "reason")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    reason: str
    def __init__(self, job_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class TerminateJobResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("state", "name", "label", "limit", "cursor")
    STATE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    state: str
    name: str
    label: str
    limit: int
    cursor: str
    def __init__(self, state: _Optional[str] = ..., name: _Optional[str] = ..., label: _Optional[str] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs", "next_cursor")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobSummary]
    next_cursor: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobSummary, _Mapping]]] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class JobSummary(_message.Message):
    __slots__ = ("job_id", "name", "state", "submitted_at_ms", "finished_at_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    name: str
    state: JobState
    submitted_at_ms: int
    finished_at_ms: int
    def __init__(self, job_id: _Optional[str] = ..., name: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., submitted_at_ms: _Optional[int] = ..., finished_at_ms: _Optional[int] = ...) -> None: ...
