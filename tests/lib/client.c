/* HTTP clients for tests. */
#define _GNU_SOURCE
#include "tests/lib/client.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { TIMEOUT_MS = 10000 };

int64_t client_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void client_pause_ms(int64_t ms)
{
    struct timespec pause = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

static size_t keep(char *bytes, size_t size, size_t n, void *closure)
{
    struct answer *answer = closure;
    char *body = realloc(answer->body, answer->length + size * n + 1);
    if (!body)
        abort();
    memcpy(body + answer->length, bytes, size * n);
    answer->body = body;
    answer->length += size * n;
    body[answer->length] = '\0';
    return size * n;
}

struct answer client_ask(unsigned port, const char *path, const char *json, const char *header,
                         long timeout_ms)
{
    struct answer answer = {.body = calloc(1, 1)};
    char url[256];
    snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", port, path);
    struct curl_slist *headers = curl_slist_append(NULL, header ? header : "X-Test: 1");
    CURL *curl = curl_easy_init();
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, keep);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, timeout_ms);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    if (json)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, json);
    int64_t before = client_now_ms();
    answer.error = (int)curl_easy_perform(curl);
    answer.ms = client_now_ms() - before;
    if (answer.error == CURLE_OK)
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer.status);
    curl_easy_cleanup(curl);
    curl_slist_free_all(headers);
    answer.json = json_loadb(answer.body, answer.length, 0, NULL);
    return answer;
}

struct answer client_get(unsigned port, const char *path)
{
    return client_ask(port, path, NULL, NULL, TIMEOUT_MS);
}

struct answer client_post(unsigned port, const char *path, const char *json)
{
    return client_ask(port, path, json, NULL, TIMEOUT_MS);
}

void client_done(struct answer *answer)
{
    json_decref(answer->json);
    free(answer->body);
    *answer = (struct answer){0};
}

int client_begin(unsigned port, const char *path, const char *json)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        abort();
    if (json)
        dprintf(fd, "POST %s HTTP/1.1\r\nHost: test\r\nContent-Length: %zu\r\n\r\n%s", path,
                strlen(json), json);
    else if (path)
        dprintf(fd, "GET %s HTTP/1.1\r\nHost: test\r\n\r\n", path);
    return fd;
}

bool client_heard(int fd, int64_t within_ms)
{
    struct pollfd waited = {.fd = fd, .events = POLLIN};
    return poll(&waited, 1, (int)within_ms) > 0;
}

void client_leave(int fd)
{
    close(fd);
}

static bool complete(const char *got)
{
    const char *body = strstr(got, "\r\n\r\n");
    if (!body)
        return false;
    if (strcasestr(got, "Transfer-Encoding: chunked"))
        return strstr(body, "\r\n0\r\n\r\n") != NULL;
    const char *length = strcasestr(got, "Content-Length: ");
    return length && strlen(body + 4) >= strtoul(length + 16, NULL, 10);
}

char *client_rest(int fd)
{
    struct answer answer = {.body = calloc(1, 1)};
    char bytes[4096];
    while (!complete(answer.body) && client_heard(fd, TIMEOUT_MS)) {
        ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
        if (got <= 0)
            break;
        keep(bytes, 1, (size_t)got, &answer);
    }
    close(fd);
    return answer.body;
}
