/*
 * Moves the wall clock of a process that preloads this, and changes the rate of its clocks: of all but
 * CLOCK_MONOTONIC_RAW, as a slewing chronyd does, or of all of them, as a bad oscillator does.
 *
 * Without a rate only the wall clock is moved: leases and timeouts that are measured by CLOCK_MONOTONIC or CLOCK_BOOTTIME
 * are not affected.
 *
 * CLOCK_SHIM_FILE names a file that holds a `struct settings`, which may change at any moment.
 *
 * The kernel is asked directly: dlsym allocates, and an allocator that asks for the time would come back here.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)
/* The most that may pass between reading two clocks that are read together. */
#define CLOSE INT64_C(200000)

struct settings {
    /* Odd while it is being changed. */
    int64_t version;
    /* How many seconds the wall clock is ahead. */
    int64_t ahead;
    /* What the clocks gain, in parts per million, since CLOCK_MONOTONIC was `since`, by when they had gained `gained`
     * (nanoseconds). */
    int64_t rate, since, gained;
    /* Whether CLOCK_MONOTONIC_RAW gains it too. */
    int64_t raw_too;
};

static const struct settings none;
/* Until the constructor has run, the clock is not changed. */
static const struct settings *shared = &none;

__attribute__((constructor)) static void attach(void)
{
    const char *path = getenv("CLOCK_SHIM_FILE");
    if (!path)
        return;
    int before = errno;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    void *map = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *shared, PROT_READ, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) {
        /* A fault that silently does not happen would make every test of it pass. */
        fprintf(stderr, "clock_shim: cannot map %s\n", path);
        _exit(125);
    }
    close(file);
    shared = map;
    errno = before;
}

static struct settings settings(void)
{
    const struct settings *from = shared;
    struct settings copy;
    int64_t before;
    do {
        before = __atomic_load_n(&from->version, __ATOMIC_SEQ_CST);
        copy.ahead = __atomic_load_n(&from->ahead, __ATOMIC_SEQ_CST);
        copy.rate = __atomic_load_n(&from->rate, __ATOMIC_SEQ_CST);
        copy.since = __atomic_load_n(&from->since, __ATOMIC_SEQ_CST);
        copy.gained = __atomic_load_n(&from->gained, __ATOMIC_SEQ_CST);
        copy.raw_too = __atomic_load_n(&from->raw_too, __ATOMIC_SEQ_CST);
        copy.version = __atomic_load_n(&from->version, __ATOMIC_SEQ_CST);
    } while (before != copy.version || before & 1);
    return copy;
}

static int64_t nanos(const struct timespec *time)
{
    return time->tv_sec * SECOND + time->tv_nsec;
}

static struct timespec timespec(int64_t nanos)
{
    struct timespec time = {.tv_sec = nanos / SECOND, .tv_nsec = nanos % SECOND};
    if (time.tv_nsec < 0) {
        time.tv_sec--;
        time.tv_nsec += SECOND;
    }
    return time;
}

static int64_t real(clockid_t clock)
{
    struct timespec now;
    return syscall(SYS_clock_gettime, clock, &now) == 0 ? nanos(&now) : 0;
}

static int is_wall(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

static int gains(const struct settings *set, clockid_t clock)
{
    if (set->rate == 0 && set->gained == 0)
        return 0;
    if (clock == CLOCK_MONOTONIC_RAW)
        return set->raw_too != 0;
    return is_wall(clock) || clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_BOOTTIME;
}

static int64_t gained(const struct settings *set, int64_t monotonic)
{
    return set->gained + (int64_t)((__int128)(monotonic - set->since) * set->rate / 1000000);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    struct settings set = settings();
    int64_t monotonic = real(CLOCK_MONOTONIC);
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result != 0)
        return result;
    if (is_wall(clock))
        now->tv_sec += set.ahead;
    if (gains(&set, clock)) {
        /* A pause between the two would make the clock jump. */
        while (real(CLOCK_MONOTONIC) - monotonic > CLOSE) {
            monotonic = real(CLOCK_MONOTONIC);
            syscall(SYS_clock_gettime, clock, now);
            if (is_wall(clock))
                now->tv_sec += set.ahead;
        }
        *now = timespec(nanos(now) + gained(&set, monotonic));
    }
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0)
        return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0)
        return (time_t)-1;
    if (now)
        *now = exact.tv_sec;
    return exact.tv_sec;
}

/* The time by the kernel's clock, by which it waits, at which this clock shows `at`. */
static struct timespec by_the_kernel(clockid_t clock, const struct timespec *at)
{
    struct settings set = settings();
    struct timespec now;
    if (!gains(&set, clock) || clock_gettime(clock, &now) != 0)
        return *at;
    int64_t left = nanos(at) - nanos(&now);
    return timespec(real(clock) + (int64_t)((__int128)left * 1000000 / (1000000 + set.rate)));
}

/* dlock's timers, which all use CLOCK_BOOTTIME and are as slow as that. */
int timerfd_settime(int timer, int flags, const struct itimerspec *new, struct itimerspec *old)
{
    struct itimerspec set = *new;
    if (flags & TFD_TIMER_ABSTIME && nanos(&set.it_value) > 0) {
        set.it_value = by_the_kernel(CLOCK_BOOTTIME, &set.it_value);
        if (nanos(&set.it_value) <= 0)
            set.it_value = timespec(1);
    }
    return (int)syscall(SYS_timerfd_settime, timer, flags, &set, old);
}

/* How a Java virtual machine waits. */
int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until)
{
    static int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!wait)
        *(void **)&wait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!wait)
        *(void **)&wait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    /* Only the condition knows its clock; no clock but the wall clock shows such a large value. */
    struct timespec at = by_the_kernel(until->tv_sec > 1000000000 ? CLOCK_REALTIME : CLOCK_MONOTONIC, until);
    return wait(cond, mutex, &at);
}
