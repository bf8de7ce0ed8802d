// Slows down fork in a process that preloads this, so that a signal can arrive between two of its steps, which takes too
// short a time otherwise. `FORKING_SLOW`: microseconds to pause before each fork and after it in the parent.
// `FORKING_STUCK`: the child of this process's first fork pauses forever.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

pid_t fork(void)
{
    static int forks;
    pid_t (*real)(void) = (pid_t (*)(void))dlsym(RTLD_NEXT, "fork");
    const char *slow = getenv("FORKING_SLOW");
    useconds_t pause_for = slow ? (useconds_t)atoi(slow) : 0;
    usleep(pause_for);
    pid_t child = real();
    if (child == 0 && forks++ == 0 && getenv("FORKING_STUCK")) {
        for (;;)
            pause();
    }
    if (child > 0)
        usleep(pause_for);
    return child;
}
