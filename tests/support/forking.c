// Makes what forks slow, to be preloaded: a signal can come in the moment between two steps of it, which is too short to
// be met otherwise. `FORKING_SLOW`: so many microseconds go by before each fork and after it in the parent.
// `FORKING_STUCK`: the child of the first fork in this process never comes further.
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
