/* Makes calls on files below a directory fail: preloaded into a process by failing_calls.py, set up by its environment.
 *
 * FAILING_BELOW   directory
 * FAILING_CALL    open, write, pwrite, pread, fsync, fdatasync, syncfs, rename, link, ftruncate, fallocate, mmap, msync
 * FAILING_ERROR   errno; 0: only half of what is written or read is
 * FAILING_FROM    the first call that fails, from 1
 * FAILING_COUNT   how many fail; 0: all from there on
 * FAILING_SWITCH  a file; calls count while it is there
 * FAILING_LOG     a file; each call that failed is a line of it
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long calls;

static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

static int is_below(const char *path) {
    const char *below = setting("FAILING_BELOW");
    return *below && strncmp(path, below, strlen(below)) == 0;
}

static void path_of(int descriptor, char *path, size_t size) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    long length = syscall(SYS_readlink, name, path, size - 1);
    path[length > 0 ? length : 0] = 0;
}

/* Whether this call fails now; errno is set where it is not cut short. */
static int fails(const char *call, const char *path) {
    if (strcmp(call, setting("FAILING_CALL")) || !is_below(path)) return 0;
    if (syscall(SYS_access, setting("FAILING_SWITCH"), F_OK)) return 0;
    long number = atomic_fetch_add(&calls, 1) + 1;
    long from = atol(setting("FAILING_FROM")), count = atol(setting("FAILING_COUNT"));
    if (number < from || (count && number >= from + count)) return 0;
    char line[4200];
    int length = snprintf(line, sizeof line, "%s %ld %s\n", call, number, path);
    int log = syscall(SYS_openat, AT_FDCWD, setting("FAILING_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (log >= 0) {
        syscall(SYS_write, log, line, length);
        syscall(SYS_close, log);
    }
    errno = atoi(setting("FAILING_ERROR"));
    return 1;
}

static int fails_of(const char *call, int descriptor) {
    char path[4096];
    if (strcmp(call, setting("FAILING_CALL"))) return 0;
    path_of(descriptor, path, sizeof path);
    return fails(call, path);
}

static int fails_at(const char *call, int directory, const char *name) {
    char path[8192];
    if (strcmp(call, setting("FAILING_CALL"))) return 0;
    if (*name == '/' || directory == AT_FDCWD) return fails(call, name);
    path_of(directory, path, 4096);
    strcat(path, "/");
    strncat(path, name, 4000);
    return fails(call, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define OPEN(name)                                                                      \
    int name(const char *path, int flags, ...) {                                        \
        va_list rest;                                                                   \
        va_start(rest, flags);                                                          \
        mode_t mode = va_arg(rest, mode_t);                                             \
        va_end(rest);                                                                   \
        return fails_at("open", AT_FDCWD, path) ? -1 : REAL(name)(path, flags, mode);   \
    }
#define OPENAT(name)                                                                    \
    int name(int at, const char *path, int flags, ...) {                                \
        va_list rest;                                                                   \
        va_start(rest, flags);                                                          \
        mode_t mode = va_arg(rest, mode_t);                                             \
        va_end(rest);                                                                   \
        return fails_at("open", at, path) ? -1 : REAL(name)(at, path, flags, mode);     \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int file, const void *data, size_t size) {
    if (!fails_of("write", file)) return REAL(write)(file, data, size);
    return errno ? -1 : REAL(write)(file, data, (size + 1) / 2);
}

#define POSITIONED(name, call, data_type, offset_type)                                  \
    ssize_t name(int file, data_type data, size_t size, offset_type at) {               \
        if (!fails_of(call, file)) return REAL(name)(file, data, size, at);             \
        return errno ? -1 : REAL(name)(file, data, (size + 1) / 2, at);                 \
    }
POSITIONED(pwrite, "pwrite", const void *, off_t)
POSITIONED(pwrite64, "pwrite", const void *, off64_t)
POSITIONED(pread, "pread", void *, off_t)
POSITIONED(pread64, "pread", void *, off64_t)

#define SYNC(name) \
    int name(int file) { return fails_of(#name, file) ? -1 : REAL(name)(file); }
SYNC(fsync)
SYNC(fdatasync)
SYNC(syncfs)

int msync(void *address, size_t size, int flags) {
    return fails("msync", setting("FAILING_BELOW")) ? -1 : REAL(msync)(address, size, flags);
}

int rename(const char *old, const char *new) {
    return fails_at("rename", AT_FDCWD, new) ? -1 : REAL(rename)(old, new);
}
int renameat(int old_at, const char *old, int new_at, const char *new) {
    return fails_at("rename", new_at, new) ? -1 : REAL(renameat)(old_at, old, new_at, new);
}
int link(const char *old, const char *new) {
    return fails_at("link", AT_FDCWD, new) ? -1 : REAL(link)(old, new);
}
int linkat(int old_at, const char *old, int new_at, const char *new, int flags) {
    return fails_at("link", new_at, new) ? -1 : REAL(linkat)(old_at, old, new_at, new, flags);
}
int ftruncate(int file, off_t size) {
    return fails_of("ftruncate", file) ? -1 : REAL(ftruncate)(file, size);
}
int ftruncate64(int file, off64_t size) {
    return fails_of("ftruncate", file) ? -1 : REAL(ftruncate64)(file, size);
}
int fallocate(int file, int mode, off_t at, off_t size) {
    return fails_of("fallocate", file) ? -1 : REAL(fallocate)(file, mode, at, size);
}
int fallocate64(int file, int mode, off64_t at, off64_t size) {
    return fails_of("fallocate", file) ? -1 : REAL(fallocate64)(file, mode, at, size);
}
void *mmap(void *address, size_t size, int protection, int flags, int file, off_t at) {
    if (file >= 0 && fails_of("mmap", file)) return MAP_FAILED;
    return REAL(mmap)(address, size, protection, flags, file, at);
}
void *mmap64(void *address, size_t size, int protection, int flags, int file, off64_t at) {
    if (file >= 0 && fails_of("mmap", file)) return MAP_FAILED;
    return REAL(mmap64)(address, size, protection, flags, file, at);
}
