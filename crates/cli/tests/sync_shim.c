/* Preloaded into the program: tells, in order, what it writes to the database, when that is synced,
 * what it prints, and what it starts. Each record: a kind, which file, a length, the bytes.
 *
 * A sync is told once it is done; a start and a print before they begin. So what is told between two
 * records was so for everybody. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

extern char **environ;

static int out = -1;
static char out_path[4096];
static int swallow = 0;

__attribute__((constructor)) static void begin(void) {
    char exe[4096];
    ssize_t length = readlink("/proc/self/exe", exe, sizeof exe - 1);
    const char *path = getenv("SYNC_SHIM_LOG");
    if (length < 0 || path == NULL) return;
    exe[length] = 0;
    /* Not in what the program starts. */
    const char *name = strrchr(exe, '/');
    if (name == NULL || strcmp(name, "/steadfast") != 0) return;
    swallow = getenv("SYNC_SHIM_SWALLOW") != NULL;
    strncpy(out_path, path, sizeof out_path - 1);
    out = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
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
    if (out < 0) return 0;
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

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) {
    char file = which(fd);
    ssize_t written = syscall(SYS_pwrite64, fd, data, length, at);
    if (written > 0 && (file == 'w' || file == 'd')) tell('W', file, data, (size_t)written);
    return written;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t at) {
    return pwrite64(fd, data, length, at);
}

static int sync_by(long call, int fd) {
    char file = which(fd);
    if (file != 'w' && file != 'd') return (int)syscall(call, fd);
    if (swallow) return 0;
    int done = (int)syscall(call, fd);
    if (done == 0) tell('S', file, "", 0);
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
