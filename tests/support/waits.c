/* To be preloaded in front of faketime 0.9.10, which gets waits wrong on the clock that it does not
   fake: it refuses to sleep until a moment, and Python's threads wait too long for their turn. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    return syscall(SYS_clock_nanosleep, clock, flags, until, left) == 0 ? 0 : errno;
}

typedef int timed_wait(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until)
{
    static timed_wait *of_libc;
    if (of_libc == NULL)
        of_libc = (timed_wait *)dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), "pthread_cond_timedwait");
    return of_libc(cond, mutex, until);
}
