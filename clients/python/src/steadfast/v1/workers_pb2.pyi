from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_ITEM: _ClassVar[Role]
    ROLE_FALLBACK: _ClassVar[Role]
    ROLE_COMPENSATION: _ClassVar[Role]
ROLE_ITEM: Role
ROLE_FALLBACK: Role
ROLE_COMPENSATION: Role

class FromWorker(_message.Message):
    __slots__ = ("hello", "beat", "report", "draining", "progress", "undrained", "credits")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    UNDRAINED_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    beat: Beat
    report: Report
    draining: Draining
    progress: Progress
    undrained: Undrained
    credits: Credits
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., draining: _Optional[_Union[Draining, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., undrained: _Optional[_Union[Undrained, _Mapping]] = ..., credits: _Optional[_Union[Credits, _Mapping]] = ...) -> None: ...

class ToWorker(_message.Message):
    __slots__ = ("welcome", "beat", "assignment", "withdrawal", "acknowledgement", "drain", "undrain", "credits_taken", "wanted", "took_over")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWAL_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGEMENT_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    UNDRAIN_FIELD_NUMBER: _ClassVar[int]
    CREDITS_TAKEN_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    TOOK_OVER_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    beat: Beat
    assignment: Assignment
    withdrawal: Withdrawal
    acknowledgement: Acknowledgement
    drain: Drain
    undrain: Undrain
    credits_taken: CreditsTaken
    wanted: Wanted
    took_over: TookOver
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ..., assignment: _Optional[_Union[Assignment, _Mapping]] = ..., withdrawal: _Optional[_Union[Withdrawal, _Mapping]] = ..., acknowledgement: _Optional[_Union[Acknowledgement, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., undrain: _Optional[_Union[Undrain, _Mapping]] = ..., credits_taken: _Optional[_Union[CreditsTaken, _Mapping]] = ..., wanted: _Optional[_Union[Wanted, _Mapping]] = ..., took_over: _Optional[_Union[TookOver, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("name", "incarnation", "returning", "datacenter", "labels", "slots", "cpu", "memory_bytes", "functions", "processes", "holds", "version", "http", "queues", "secret", "proof", "credits", "elsewhere")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RETURNING_FIELD_NUMBER: _ClassVar[int]
    DATACENTER_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    FUNCTIONS_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HTTP_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    ELSEWHERE_FIELD_NUMBER: _ClassVar[int]
    name: str
    incarnation: str
    returning: bool
    datacenter: str
    labels: _containers.ScalarMap[str, str]
    slots: int
    cpu: float
    memory_bytes: int
    functions: _containers.RepeatedScalarFieldContainer[str]
    processes: bool
    holds: _containers.RepeatedCompositeFieldContainer[AttemptRef]
    version: str
    http: bool
    queues: bool
    secret: bytes
    proof: bytes
    credits: int
    elsewhere: _containers.RepeatedCompositeFieldContainer[HeldOfScope]
    def __init__(self, name: _Optional[str] = ..., incarnation: _Optional[str] = ..., returning: bool = ..., datacenter: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., slots: _Optional[int] = ..., cpu: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., functions: _Optional[_Iterable[str]] = ..., processes: bool = ..., holds: _Optional[_Iterable[_Union[AttemptRef, _Mapping]]] = ..., version: _Optional[str] = ..., http: bool = ..., queues: bool = ..., secret: _Optional[bytes] = ..., proof: _Optional[bytes] = ..., credits: _Optional[int] = ..., elsewhere: _Optional[_Iterable[_Union[HeldOfScope, _Mapping]]] = ...) -> None: ...

class HeldOfScope(_message.Message):
    __slots__ = ("scope", "holds", "returning")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    RETURNING_FIELD_NUMBER: _ClassVar[int]
    scope: str
    holds: _containers.RepeatedCompositeFieldContainer[AttemptRef]
    returning: bool
    def __init__(self, scope: _Optional[str] = ..., holds: _Optional[_Iterable[_Union[AttemptRef, _Mapping]]] = ..., returning: bool = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("lease_ms", "beat_ms", "proof", "log_bytes", "output_bytes", "peers", "scope", "epoch", "not_held")
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    BEAT_MS_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NOT_HELD_FIELD_NUMBER: _ClassVar[int]
    lease_ms: int
    beat_ms: int
    proof: bytes
    log_bytes: int
    output_bytes: int
    peers: _containers.RepeatedScalarFieldContainer[str]
    scope: str
    epoch: int
    not_held: _containers.RepeatedCompositeFieldContainer[AttemptRef]
    def __init__(self, lease_ms: _Optional[int] = ..., beat_ms: _Optional[int] = ..., proof: _Optional[bytes] = ..., log_bytes: _Optional[int] = ..., output_bytes: _Optional[int] = ..., peers: _Optional[_Iterable[str]] = ..., scope: _Optional[str] = ..., epoch: _Optional[int] = ..., not_held: _Optional[_Iterable[_Union[AttemptRef, _Mapping]]] = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class AttemptRef(_message.Message):
    __slots__ = ("job_id", "token", "run", "step", "role", "index", "attempt", "step_name", "proof")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STEP_NAME_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    token: int
    run: int
    step: int
    role: Role
    index: int
    attempt: int
    step_name: str
    proof: bytes
    def __init__(self, job_id: _Optional[str] = ..., token: _Optional[int] = ..., run: _Optional[int] = ..., step: _Optional[int] = ..., role: _Optional[_Union[Role, str]] = ..., index: _Optional[int] = ..., attempt: _Optional[int] = ..., step_name: _Optional[str] = ..., proof: _Optional[bytes] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("attempt", "datacenter", "item_json", "run", "argv", "call", "http_json", "impossible", "env", "files", "secrets", "ports", "timeout_ms", "heartbeat_ms", "callback_url", "progress_json", "folder", "scope", "epoch", "cpu_milli", "memory_bytes")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DATACENTER_FIELD_NUMBER: _ClassVar[int]
    ITEM_JSON_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    HTTP_JSON_FIELD_NUMBER: _ClassVar[int]
    IMPOSSIBLE_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    CALLBACK_URL_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_JSON_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CPU_MILLI_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptRef
    datacenter: str
    item_json: str
    run: str
    argv: Argv
    call: Call
    http_json: str
    impossible: str
    env: _containers.ScalarMap[str, str]
    files: _containers.RepeatedScalarFieldContainer[str]
    secrets: _containers.RepeatedScalarFieldContainer[str]
    ports: _containers.RepeatedScalarFieldContainer[str]
    timeout_ms: int
    heartbeat_ms: int
    callback_url: str
    progress_json: str
    folder: str
    scope: str
    epoch: int
    cpu_milli: int
    memory_bytes: int
    def __init__(self, attempt: _Optional[_Union[AttemptRef, _Mapping]] = ..., datacenter: _Optional[str] = ..., item_json: _Optional[str] = ..., run: _Optional[str] = ..., argv: _Optional[_Union[Argv, _Mapping]] = ..., call: _Optional[_Union[Call, _Mapping]] = ..., http_json: _Optional[str] = ..., impossible: _Optional[str] = ..., env: _Optional[_Mapping[str, str]] = ..., files: _Optional[_Iterable[str]] = ..., secrets: _Optional[_Iterable[str]] = ..., ports: _Optional[_Iterable[str]] = ..., timeout_ms: _Optional[int] = ..., heartbeat_ms: _Optional[int] = ..., callback_url: _Optional[str] = ..., progress_json: _Optional[str] = ..., folder: _Optional[str] = ..., scope: _Optional[str] = ..., epoch: _Optional[int] = ..., cpu_milli: _Optional[int] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class Argv(_message.Message):
    __slots__ = ("argv",)
    ARGV_FIELD_NUMBER: _ClassVar[int]
    argv: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, argv: _Optional[_Iterable[str]] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("name", "input_json")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INPUT_JSON_FIELD_NUMBER: _ClassVar[int]
    name: str
    input_json: str
    def __init__(self, name: _Optional[str] = ..., input_json: _Optional[str] = ...) -> None: ...

class Withdrawal(_message.Message):
    __slots__ = ("attempt", "scope", "epoch")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptRef
    scope: str
    epoch: int
    def __init__(self, attempt: _Optional[_Union[AttemptRef, _Mapping]] = ..., scope: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class TookOver(_message.Message):
    __slots__ = ("scope", "epoch", "attempts")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    scope: str
    epoch: int
    attempts: _containers.RepeatedCompositeFieldContainer[AttemptRef]
    def __init__(self, scope: _Optional[str] = ..., epoch: _Optional[int] = ..., attempts: _Optional[_Iterable[_Union[AttemptRef, _Mapping]]] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("attempt", "succeeded", "failed", "lost", "awaiting_callback", "log_follows")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    AWAITING_CALLBACK_FIELD_NUMBER: _ClassVar[int]
    LOG_FOLLOWS_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptRef
    succeeded: Succeeded
    failed: Failed
    lost: Lost
    awaiting_callback: AwaitingCallback
    log_follows: bool
    def __init__(self, attempt: _Optional[_Union[AttemptRef, _Mapping]] = ..., succeeded: _Optional[_Union[Succeeded, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ..., lost: _Optional[_Union[Lost, _Mapping]] = ..., awaiting_callback: _Optional[_Union[AwaitingCallback, _Mapping]] = ..., log_follows: bool = ...) -> None: ...

class AwaitingCallback(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Progress(_message.Message):
    __slots__ = ("attempt", "progress_json")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_JSON_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptRef
    progress_json: str
    def __init__(self, attempt: _Optional[_Union[AttemptRef, _Mapping]] = ..., progress_json: _Optional[str] = ...) -> None: ...

class Succeeded(_message.Message):
    __slots__ = ("output_json",)
    OUTPUT_JSON_FIELD_NUMBER: _ClassVar[int]
    output_json: str
    def __init__(self, output_json: _Optional[str] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("kind", "code", "permanent", "permanent_by_status", "retry_after_ms", "defer_ms", "http_status", "error_kind", "error_message")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_NOT_COMPLETED: _ClassVar[Failed.Kind]
        KIND_EXITED: _ClassVar[Failed.Kind]
        KIND_SIGNALLED: _ClassVar[Failed.Kind]
        KIND_TIMED_OUT: _ClassVar[Failed.Kind]
        KIND_HANDLER_FAILED: _ClassVar[Failed.Kind]
    KIND_NOT_COMPLETED: Failed.Kind
    KIND_EXITED: Failed.Kind
    KIND_SIGNALLED: Failed.Kind
    KIND_TIMED_OUT: Failed.Kind
    KIND_HANDLER_FAILED: Failed.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    PERMANENT_FIELD_NUMBER: _ClassVar[int]
    PERMANENT_BY_STATUS_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    DEFER_MS_FIELD_NUMBER: _ClassVar[int]
    HTTP_STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_KIND_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    kind: Failed.Kind
    code: int
    permanent: bool
    permanent_by_status: bool
    retry_after_ms: int
    defer_ms: int
    http_status: int
    error_kind: str
    error_message: str
    def __init__(self, kind: _Optional[_Union[Failed.Kind, str]] = ..., code: _Optional[int] = ..., permanent: bool = ..., permanent_by_status: bool = ..., retry_after_ms: _Optional[int] = ..., defer_ms: _Optional[int] = ..., http_status: _Optional[int] = ..., error_kind: _Optional[str] = ..., error_message: _Optional[str] = ...) -> None: ...

class Lost(_message.Message):
    __slots__ = ("started", "why")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    started: bool
    why: str
    def __init__(self, started: bool = ..., why: _Optional[str] = ...) -> None: ...

class Acknowledgement(_message.Message):
    __slots__ = ("attempt", "counted")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptRef
    counted: bool
    def __init__(self, attempt: _Optional[_Union[AttemptRef, _Mapping]] = ..., counted: bool = ...) -> None: ...

class LogChunk(_message.Message):
    __slots__ = ("attempt", "worker", "offset", "bytes", "last")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptRef
    worker: str
    offset: int
    bytes: bytes
    last: bool
    def __init__(self, attempt: _Optional[_Union[AttemptRef, _Mapping]] = ..., worker: _Optional[str] = ..., offset: _Optional[int] = ..., bytes: _Optional[bytes] = ..., last: bool = ...) -> None: ...

class LogAck(_message.Message):
    __slots__ = ("length", "complete")
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    length: int
    complete: bool
    def __init__(self, length: _Optional[int] = ..., complete: bool = ...) -> None: ...

class Draining(_message.Message):
    __slots__ = ("why",)
    WHY_FIELD_NUMBER: _ClassVar[int]
    why: str
    def __init__(self, why: _Optional[str] = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Undrain(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Undrained(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Credits(_message.Message):
    __slots__ = ("slots", "number", "cpu_milli", "memory_bytes")
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CPU_MILLI_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    slots: int
    number: int
    cpu_milli: int
    memory_bytes: int
    def __init__(self, slots: _Optional[int] = ..., number: _Optional[int] = ..., cpu_milli: _Optional[int] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class CreditsTaken(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class Wanted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetFileRequest(_message.Message):
    __slots__ = ("attempt", "path", "worker")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    attempt: AttemptRef
    path: str
    worker: str
    def __init__(self, attempt: _Optional[_Union[AttemptRef, _Mapping]] = ..., path: _Optional[str] = ..., worker: _Optional[str] = ...) -> None: ...

class FileChunk(_message.Message):
    __slots__ = ("bytes", "executable")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    EXECUTABLE_FIELD_NUMBER: _ClassVar[int]
    bytes: bytes
    executable: bool
    def __init__(self, bytes: _Optional[bytes] = ..., executable: bool = ...) -> None: ...
