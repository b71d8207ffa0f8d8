/* Time, waiting and growing text. */
#define _GNU_SOURCE
#include "tests/lib/slotserver_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* False once the time has come; may return true early, as conditions do. */
bool wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t when)
{
    struct timespec deadline = {
        .tv_sec = (time_t)(when / 1000000),
        .tv_nsec = (long)(when % 1000000) * 1000,
    };
    return pthread_cond_timedwait(condition, lock, &deadline) != ETIMEDOUT;
}

static void text_reserve(struct text *text, size_t more)
{
    size_t needed = text->length + more + 1;
    if (needed <= text->size)
        return;
    size_t size = text->size ? text->size : 256;
    while (size < needed)
        size *= 2;
    char *at = realloc(text->at, size);
    if (!at)
        abort();
    text->at = at;
    text->size = size;
}

void text_add(struct text *text, const char *bytes, size_t length)
{
    text_reserve(text, length);
    memcpy(text->at + text->length, bytes, length);
    text->length += length;
    text->at[text->length] = '\0';
}

void text_format(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length > 0) {
        text_reserve(text, (size_t)length);
        vsnprintf(text->at + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
}

void text_free(struct text *text)
{
    free(text->at);
    *text = (struct text){0};
}

/* As the real server looks: a client that has closed its sending half counts as gone, too. */
bool peer_gone(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0)
        return false;
    return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}
