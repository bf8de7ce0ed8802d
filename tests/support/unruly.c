// Programs that are hard to stop: `unruly WHAT [NUMBER]`. All of them ignore SIGTERM. Each prints its name once it is at
// work, and ends on its own after a minute, so that a failing test leaves nothing behind.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static time_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_BOOTTIME, &at);
    return at.tv_sec;
}

// One write, because others may write at the same time.
static void say(const char *what, long number)
{
    char line[64];
    int length = snprintf(line, sizeof line, "%s %ld\n", what, number);
    if (write(1, line, (size_t)length) < 0)
        _exit(1);
}

static void stay(void)
{
    sleep(60);
    _exit(0);
}

// A process whose pid changes with each step: it forks, and goes on as its child. By plain system calls, because the
// library does more for each.
static void chain(time_t end)
{
    // No limit holds for root, and others use the machine too.
    useconds_t pause = geteuid() == 0 ? 5000 : 0;
    while (now() < end) {
        if (pause)
            usleep(pause);
        if (syscall(SYS_clone, (long)SIGCHLD, 0, 0, 0, 0) > 0)
            syscall(SYS_exit, 0);
    }
    syscall(SYS_exit, 0);
}

// This many of them.
static void storm(long count)
{
    time_t end = now() + 20;
    // Processes that have ended and were not collected yet count.
    struct rlimit limit = { 6000, 6000 };
    setrlimit(RLIMIT_NPROC, &limit);
    for (long i = 0; i < count; i++) {
        if (fork() == 0)
            chain(end);
    }
    say("storm", getpid());
    stay();
}

// This many processes that do nothing.
static void crowd(long count)
{
    for (long i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0)
            stay();
        if (child < 0) {
            say("crowd", -errno);
            _exit(1);
        }
    }
    say("crowd", getpid());
    stay();
}

// This many processes that need all the processor that they can get, from when it has been said.
static void busy(long count)
{
    int start[2];
    if (pipe(start) < 0)
        _exit(1);
    for (long i = 0; i < count; i++) {
        if (fork() == 0) {
            char none;
            close(start[1]);
            if (read(start[0], &none, 1) != 0)
                _exit(1);
            time_t end = now() + 60;
            while (now() < end)
                ;
            _exit(0);
        }
    }
    say("busy", getpid());
    close(start[1]);
    stay();
}

static void *work(void *nothing)
{
    (void)nothing;
    // The first thread has ended by then.
    usleep(50000);
    say("worker", syscall(SYS_gettid));
    stay();
    return NULL;
}

// A process whose first thread has ended while another one works.
static void headless(void)
{
    pthread_t worker;
    if (pthread_create(&worker, NULL, work, NULL) != 0)
        _exit(1);
    pthread_exit(NULL);
}

// A process that leaves a child behind and takes more memory than there is.
static void hog(void)
{
    pid_t child = fork();
    if (child == 0) {
        setsid();
        stay();
    }
    say("child", child);
    for (;;) {
        size_t size = 1 << 20;
        char *place = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (place == MAP_FAILED)
            _exit(1);
        memset(place, 1, size);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    long number = argc > 2 ? atol(argv[2]) : 1;
    signal(SIGTERM, SIG_IGN);
    if (!strcmp(what, "storm"))
        storm(number);
    else if (!strcmp(what, "crowd"))
        crowd(number);
    else if (!strcmp(what, "busy"))
        busy(number);
    else if (!strcmp(what, "headless"))
        headless();
    else if (!strcmp(what, "hog"))
        hog();
    return 2;
}
