/* Hears of what befalls the files of books, so that who holds a lease in one that was cut short or
 * removed takes it again before others take its place. Linux: inotify. Elsewhere, and where no
 * descriptor is to be had, nothing is heard, and the keeper's next look finds out (kqueue's
 * EVFILT_VNODE would tell it on macOS). Internal; one thread at a time. */
#ifndef AGENT_BOOK_WATCH_H
#define AGENT_BOOK_WATCH_H

#include <stdint.h>

/* A descriptor for the caller to close, or -1. */
int book_watch_open(void);

/* From now on hears of the book of `provider` in `directory`, and of files that are made there.
 * Once more for the same file does nothing. */
void book_watch_add(int fd, const char *directory, const char *provider);

/* Sleeps for ms at most, or until something was heard or wake_fd is readable. */
void book_watch_wait(int fd, int wake_fd, int64_t ms);

#endif
