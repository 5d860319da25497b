/* Faults on a disk, for tests: preloaded into a program, this library counts its calls on files of
 * one folder, fails the one it was told to, and writes down all that changes there.
 *
 * A program arms it by the functions below; until then it only passes calls on. What it writes
 * down can be replayed to any disk that a power cut would leave (disk.py).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char folder[PATH_MAX]; /* empty: nothing is watched */
static long calls, failing;   /* counted so far; the one to fail, 0 for none */
static int error_number, lasting, with_reads, log_file = -1;
static char hit[PATH_MAX + 32]; /* the first call that failed, and on which file */

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

/* Calls of the tests */

void faults_watch(const char *path) { snprintf(folder, sizeof folder, "%s", path); }

/* Fail the n-th call from now on; with a lasting error all later ones that write, too. */
void faults_arm(long nth, int error, int lasts, int reads) {
    calls = 0, failing = nth, error_number = error, lasting = lasts, with_reads = reads;
    hit[0] = 0;
}

long faults_disarm(void) {
    failing = 0;
    return calls;
}

const char *faults_hit(void) { return hit; }

void faults_log(int file) { log_file = file; }

/* Which file */

static int watched(const char *path) {
    size_t length = strlen(folder);
    return length && !strncmp(path, folder, length) && (path[length] == '/' || !path[length]);
}

static const char *name_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return NULL;
    path[length] = 0;
    return watched(path) ? path : NULL;
}

static const char *absolute(const char *given, char *path) {
    if (given[0] == '/') return snprintf(path, PATH_MAX, "%s", given), watched(path) ? path : NULL;
    if (!getcwd(path, PATH_MAX)) return NULL;
    size_t length = strlen(path);
    snprintf(path + length, PATH_MAX - length, "/%s", given);
    return watched(path) ? path : NULL;
}

enum kind { TAKES_SPACE, TAKES_NONE, READS };

/* Whether this call fails. One that reads counts only when reads do; a full disk stops no call that
 * takes no space. */
static int fails(const char *call, const char *path, enum kind kind) {
    int failed = 0;
    pthread_mutex_lock(&lock);
    if (failing && (with_reads || kind != READS) &&
        (error_number != ENOSPC || kind == TAKES_SPACE)) {
        calls++;
        failed = calls == failing || (lasting && calls > failing);
        if (failed && !hit[0]) snprintf(hit, sizeof hit, "%s %s", call, strrchr(path, '/') + 1);
    }
    pthread_mutex_unlock(&lock);
    if (failed) errno = error_number;
    return failed;
}

/* A short write comes before a full disk: half of it still fits. */
static int halved(const char *path, size_t size) {
    int short_write = 0;
    pthread_mutex_lock(&lock);
    if (failing && lasting && error_number == ENOSPC && calls + 1 == failing && size > 1) {
        calls++;
        snprintf(hit, sizeof hit, "half write %s", strrchr(path, '/') + 1);
        short_write = 1;
    }
    pthread_mutex_unlock(&lock);
    return short_write;
}

static void note(const char *what, const char *path, long long at, const void *data, size_t size) {
    if (log_file < 0) return;
    int kept = errno;
    char head[PATH_MAX + 128];
    int length = snprintf(head, sizeof head, "%s\t%s\t%lld\t%zu\n", what, path, at, size);
    pthread_mutex_lock(&lock);
    if (REAL(write)(log_file, head, length) != length) abort();
    if (size && REAL(write)(log_file, data, size) != (ssize_t)size) abort();
    pthread_mutex_unlock(&lock);
    errno = kept;
}

/* What the program has told somebody else: a power cut later must not take it back. */
void faults_mark(const char *words) { note("mark", "-", 0, words, strlen(words)); }

/* The calls */

static int opened(const char *call, const char *given, int flags, mode_t mode) {
    char path[PATH_MAX];
    const char *name = absolute(given, path);
    int kept = errno;
    int new = name && (flags & O_CREAT) && access(name, F_OK);
    enum kind kind = new ? TAKES_SPACE : flags & O_ACCMODE ? TAKES_NONE : READS;
    if (name && fails(call, name, kind)) return -1;
    int fd = REAL(open64)(given, flags, mode);
    if (fd >= 0) errno = kept;
    if (fd >= 0 && new) note("create", name, 0, NULL, 0);
    if (fd >= 0 && name && (flags & O_TRUNC)) note("truncate", name, 0, NULL, 0);
    return fd;
}

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...) {                                                   \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                    \
        va_end(more);                                                                              \
        return opened("open", path, flags, mode);                                                  \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                               \
    int name(int at, const char *path, int flags, ...) {                                           \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                    \
        va_end(more);                                                                              \
        if (at != AT_FDCWD && path[0] != '/') return REAL(openat64)(at, path, flags, mode);        \
        return opened("open", path, flags, mode);                                                  \
    }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int fd, const void *data, size_t size) {
    char path[PATH_MAX];
    const char *name = folder[0] ? name_of(fd, path) : NULL;
    if (!name) return REAL(write)(fd, data, size);
    if (halved(name, size)) size /= 2;
    else if (fails("write", name, TAKES_SPACE)) return -1;
    ssize_t done = REAL(write)(fd, data, size);
    if (done > 0) note("write", name, lseek64(fd, 0, SEEK_CUR) - done, data, done);
    return done;
}

#define PWRITE(name, offset)                                                                       \
    ssize_t name(int fd, const void *data, size_t size, offset at) {                               \
        char path[PATH_MAX];                                                                       \
        const char *file = folder[0] ? name_of(fd, path) : NULL;                                   \
        if (!file) return REAL(pwrite64)(fd, data, size, at);                                      \
        if (halved(file, size)) size /= 2;                                                         \
        else if (fails("write", file, TAKES_SPACE)) return -1;                                               \
        ssize_t done = REAL(pwrite64)(fd, data, size, at);                                         \
        if (done > 0) note("write", file, at, data, done);                                         \
        return done;                                                                               \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t read(int fd, void *data, size_t size) {
    char path[PATH_MAX];
    const char *name = failing && with_reads ? name_of(fd, path) : NULL;
    if (name && fails("read", name, READS)) return -1;
    return REAL(read)(fd, data, size);
}

#define PREAD(name, offset)                                                                        \
    ssize_t name(int fd, void *data, size_t size, offset at) {                                     \
        char path[PATH_MAX];                                                                       \
        const char *file = failing && with_reads ? name_of(fd, path) : NULL;                       \
        if (file && fails("read", file, READS)) return -1;                                             \
        return REAL(pread64)(fd, data, size, at);                                                  \
    }
PREAD(pread, off_t)
PREAD(pread64, off64_t)

#define FTRUNCATE(name, offset)                                                                    \
    int name(int fd, offset size) {                                                                \
        char path[PATH_MAX];                                                                       \
        const char *file = folder[0] ? name_of(fd, path) : NULL;                                   \
        if (file && fails("truncate", file, TAKES_SPACE)) return -1;                                         \
        int done = REAL(ftruncate64)(fd, size);                                                    \
        if (file && !done) note("truncate", file, size, NULL, 0);                                  \
        return done;                                                                               \
    }
FTRUNCATE(ftruncate, off_t)
FTRUNCATE(ftruncate64, off64_t)

#define SYNC(name)                                                                                 \
    int name(int fd) {                                                                             \
        char path[PATH_MAX];                                                                       \
        const char *file = folder[0] ? name_of(fd, path) : NULL;                                   \
        if (file && fails("sync", file, TAKES_SPACE)) return -1;                                             \
        /* The disk of a test may be slow: what is written down stands for what is on it. */       \
        if (!file) return REAL(name)(fd);                                                          \
        note("sync", file, 0, NULL, 0);                                                            \
        return 0;                                                                                  \
    }
SYNC(fsync)
SYNC(fdatasync)

int rename(const char *from, const char *to) {
    char old[PATH_MAX], new[PATH_MAX];
    const char *was = absolute(from, old), *is = absolute(to, new);
    if (is && fails("rename", is, TAKES_NONE)) return -1;
    int done = REAL(rename)(from, to);
    if (!done && was && is) note("rename", was, 0, is, strlen(is));
    return done;
}

int unlink(const char *given) {
    char path[PATH_MAX];
    const char *name = absolute(given, path);
    if (name && fails("unlink", name, TAKES_NONE)) return -1;
    int done = REAL(unlink)(given);
    if (!done && name) note("unlink", name, 0, NULL, 0);
    return done;
}

int mkdir(const char *given, mode_t mode) {
    char path[PATH_MAX];
    const char *name = absolute(given, path);
    if (name && access(name, F_OK) && fails("mkdir", name, TAKES_SPACE)) return -1;
    int done = REAL(mkdir)(given, mode);
    if (!done && name) note("mkdir", name, 0, NULL, 0);
    return done;
}
