/*
 * A process that preloads this does not wait until its files are on the disk. Its settings still say that it does.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>

int fsync(int file)
{
    (void)file;
    return 0;
}

int fdatasync(int file)
{
    (void)file;
    return 0;
}

int sync_file_range(int file, off64_t from, off64_t bytes, unsigned int how)
{
    (void)file, (void)from, (void)bytes, (void)how;
    return 0;
}
