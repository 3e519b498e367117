/* Preloaded into the program: tells, in order, what it writes to the database, when that is synced,
 * what it prints, and what it starts. Each record: a kind, which file, a length, the bytes.
 *
 * A sync is told once it is done; a start and a print before they begin. So what is told between two
 * records was so for everybody.
 *
 * And it is a disk that can fail. SYNC_SHIM_UNDO names two files, of the log (`.w`) and of the database
 * (`.d`), that have what stood where something was written that is not synced yet: who puts it back has the
 * disk as a power cut would leave it. While there is a file SYNC_SHIM_FAIL, the next sync (after
 * SYNC_SHIM_FAIL_AFTER good ones) removes it, and fails: what it should have made durable is gone, and the
 * sync after it succeeds, as with Linux. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

extern char **environ;

static int out = -1;
static char out_path[4096];
static int swallow = 0;
static const char *fail_path = NULL;
static int good_syncs = 0;
/* What would be lost, of the log and of the database. */
static int undo[2] = {-1, -1};
static pthread_mutex_t disk = PTHREAD_MUTEX_INITIALIZER;
/* In the program itself, not in what it starts. */
static int is_on = 0;

__attribute__((constructor)) static void begin(void) {
    char exe[4096];
    ssize_t length = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (length < 0) return;
    exe[length] = 0;
    const char *name = strrchr(exe, '/');
    if (name == NULL || strcmp(name, "/steadfast") != 0) return;
    is_on = 1;
    swallow = getenv("SYNC_SHIM_SWALLOW") != NULL;
    fail_path = getenv("SYNC_SHIM_FAIL");
    const char *after = getenv("SYNC_SHIM_FAIL_AFTER");
    good_syncs = after == NULL ? 0 : atoi(after);
    const char *path = getenv("SYNC_SHIM_LOG");
    if (path != NULL) {
        strncpy(out_path, path, sizeof out_path - 1);
        out = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
    const char *undo_path = getenv("SYNC_SHIM_UNDO");
    for (int file = 0; undo_path != NULL && file < 2; file++) {
        char of_file[4096];
        snprintf(of_file, sizeof of_file, "%s.%c", undo_path, "wd"[file]);
        undo[file] = open(of_file, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (undo[file] < 0) abort();
    }
}

static void tell_to(int to, char kind, char file, const void *data, size_t length) {
    if (to < 0) return;
    int before = errno;
    unsigned char head[6] = {(unsigned char)kind, (unsigned char)file};
    uint32_t size = (uint32_t)length;
    memcpy(head + 2, &size, 4);
    struct iovec parts[2] = {{head, sizeof head}, {(void *)data, length}};
    /* One call on a file opened to append: records are whole and in order. */
    if (syscall(SYS_writev, to, parts, 2) != (long)(sizeof head + length)) abort();
    errno = before;
}

static void tell(char kind, char file, const void *data, size_t length) {
    tell_to(out, kind, file, data, length);
}

/* 'w' the write-ahead log, 'd' the database, 'p' what is printed, 0 anything else. */
static char which(int fd) {
    char link[64], path[4096];
    if (!is_on) return 0;
    if (fd == 1) return 'p';
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path);
    if (length > 4 && memcmp(path + length - 4, "-wal", 4) == 0) return 'w';
    if (length > 3 && memcmp(path + length - 3, ".db", 3) == 0) return 'd';
    return 0;
}

ssize_t write(int fd, const void *data, size_t length) {
    char file = which(fd);
    if (file == 'p') tell('P', 'p', data, length);
    ssize_t written = syscall(SYS_write, fd, data, length);
    if (written > 0 && (file == 'w' || file == 'd')) tell('W', file, data, (size_t)written);
    return written;
}

struct was {
    uint64_t at, size, length, kept;
};

/* Before something is written: what stands there, and how long the file is. */
static void keep(int to, int fd, size_t length, off64_t at) {
    struct stat stat;
    char *old = malloc(length);
    if (old == NULL || fstat(fd, &stat) != 0) abort();
    ssize_t kept = syscall(SYS_pread64, fd, old, length, at);
    struct was was = {(uint64_t)at, (uint64_t)stat.st_size, length, kept < 0 ? 0 : (uint64_t)kept};
    struct iovec parts[2] = {{&was, sizeof was}, {old, was.kept}};
    if (syscall(SYS_writev, to, parts, 2) != (long)(sizeof was + was.kept)) abort();
    free(old);
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) {
    char file = which(fd);
    if (file != 'w' && file != 'd') return syscall(SYS_pwrite64, fd, data, length, at);
    int to = undo[file == 'd'];
    pthread_mutex_lock(&disk);
    if (to >= 0) keep(to, fd, length, at);
    ssize_t written = syscall(SYS_pwrite64, fd, data, length, at);
    int why = errno;
    pthread_mutex_unlock(&disk);
    if (written > 0) tell('W', file, data, (size_t)written);
    errno = why;
    return written;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t at) {
    return pwrite64(fd, data, length, at);
}

/* What was kept is put back, the last of it first. */
static void put_back(int from, int fd) {
    off64_t size = syscall(SYS_lseek, from, 0, SEEK_END);
    char *all = malloc((size_t)size + 1);
    off64_t *starts = malloc(((size_t)size / sizeof(struct was) + 1) * sizeof *starts);
    size_t count = 0;
    struct was was;
    if (all == NULL || starts == NULL) abort();
    if (syscall(SYS_pread64, from, all, size, (off64_t)0) != size) abort();
    for (off64_t at = 0; at < size; at += (off64_t)(sizeof was + was.kept)) {
        memcpy(&was, all + at, sizeof was);
        starts[count++] = at;
    }
    while (count-- > 0) {
        memcpy(&was, all + starts[count], sizeof was);
        const char *old = all + starts[count] + sizeof was;
        if (syscall(SYS_pwrite64, fd, old, was.kept, was.at) != (long)was.kept) abort();
        if (was.at + was.length > was.size && ftruncate(fd, (off_t)was.size) != 0) abort();
    }
    free(starts);
    free(all);
}

static int sync_by(long call, int fd) {
    char file = which(fd);
    if (file != 'w' && file != 'd') return (int)syscall(call, fd);
    if (swallow) return 0;
    int kept = undo[file == 'd'];
    pthread_mutex_lock(&disk);
    int fails = fail_path != NULL && good_syncs-- <= 0 && unlink(fail_path) == 0;
    if (fails && kept >= 0) put_back(kept, fd);
    int done = fails ? -1 : (int)syscall(call, fd);
    if (kept >= 0 && (fails || done == 0) && ftruncate(kept, 0) != 0) abort();
    pthread_mutex_unlock(&disk);
    if (done == 0) tell('S', file, "", 0);
    if (fails) errno = EIO;
    return done;
}

int fsync(int fd) { return sync_by(SYS_fsync, fd); }
int fdatasync(int fd) { return sync_by(SYS_fdatasync, fd); }

static void tell_start_to(int to, char *const env[]) {
    static const char name[] = "STEADFAST_ATTEMPT_TOKEN=";
    for (; env != NULL && *env != NULL; env++) {
        if (strncmp(*env, name, sizeof name - 1) == 0) {
            const char *token = *env + sizeof name - 1;
            tell_to(to, 'X', '-', token, strlen(token));
            return;
        }
    }
    tell_to(to, 'X', '-', "", 0);
}

static void tell_start(char *const env[]) { tell_start_to(out, env); }

typedef int spawn_fn(pid_t *, const char *, const posix_spawn_file_actions_t *,
                     const posix_spawnattr_t *, char *const[], char *const[]);

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const argv[], char *const env[]) {
    tell_start(env);
    spawn_fn *next = (spawn_fn *)dlsym(RTLD_NEXT, "posix_spawn");
    return next(pid, path, actions, attributes, argv, env);
}

int posix_spawnp(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const argv[], char *const env[]) {
    tell_start(env);
    spawn_fn *next = (spawn_fn *)dlsym(RTLD_NEXT, "posix_spawnp");
    return next(pid, path, actions, attributes, argv, env);
}

/* In the child, which has the parent's memory but no descriptors of its any more. */
int execve(const char *path, char *const argv[], char *const env[]) {
    if (out >= 0) {
        int again = open(out_path, O_WRONLY | O_APPEND | O_CLOEXEC);
        tell_start_to(again, env);
        close(again);
    }
    return (int)syscall(SYS_execve, path, argv, env);
}

int execvp(const char *path, char *const argv[]) {
    tell_start(environ);
    int (*next)(const char *, char *const[]) =
        (int (*)(const char *, char *const[]))dlsym(RTLD_NEXT, "execvp");
    return next(path, argv);
}
