/* A descriptor 0, 1 or 2 that is closed would be the next file's, and what is printed would go into a
 * book. First in every main(). */
#ifndef TOOLS_STANDARD_STREAMS_H
#define TOOLS_STANDARD_STREAMS_H

#include <fcntl.h>
#include <unistd.h>

static inline void occupy_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd)
            _exit(70);
}

#endif
