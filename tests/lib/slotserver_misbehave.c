/* What a probe may meet instead of a llama-server. */
#define _GNU_SOURCE
#include "tests/lib/slotserver_internal.h"

#include <string.h>
#include <sys/socket.h>

enum { HUGE_SIZE = 100 << 20, LOOK_US = 100000 };

static const char *const names[] = {
    [BEHAVE] = "none",         [HANG] = "hang",         [HTML] = "html",
    [TRUNCATED] = "truncated", [CUT] = "cut",           [HUGE_BODY] = "huge",
    [GARBAGE] = "garbage",     [REDIRECT] = "redirect", [REFUSE_SLOTS] = "refuse-slots",
};

bool misbehaviour_parse(const char *word, enum misbehaviour *misbehaviour)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (strcmp(names[i], word) == 0) {
            *misbehaviour = (enum misbehaviour)i;
            return true;
        }
    }
    return false;
}

bool misbehaves_on(enum misbehaviour misbehaviour, const char *path)
{
    if (misbehaviour == REFUSE_SLOTS)
        return strcmp(path, "/slots") == 0 || strcmp(path, "/metrics") == 0;
    return misbehaviour != BEHAVE;
}

static int fd_of(struct request *request)
{
    return MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_FD)
        ->connect_fd;
}

/* Until the client gives up, and no longer, so that its thread does not stay behind. */
static enum MHD_Result hang(struct request *request)
{
    struct slotserver *server = request->server;
    int fd = fd_of(request);
    pthread_mutex_lock(&server->lock);
    while (!server->stopping && !peer_gone(fd))
        wait_until(&server->results, &server->lock, now_us() + LOOK_US);
    pthread_mutex_unlock(&server->lock);
    return MHD_NO;
}

static enum MHD_Result html(struct request *request)
{
    static const char body[] = "<!doctype html><html><head><title>Welcome</title></head>"
                               "<body><h1>It works!</h1></body></html>";
    return answer_text(request, MHD_HTTP_OK, "text/html", body, sizeof(body) - 1);
}

static const char half[] = "[{\"id\":0,\"n_ctx\":8192,\"speculative\":false,\"is_proc";

static enum MHD_Result truncated(struct request *request)
{
    return answer_text(request, MHD_HTTP_OK, "application/json", half, sizeof(half) - 1);
}

static ssize_t read_half(void *closure, uint64_t position, char *buffer, size_t size)
{
    (void)closure;
    if (position > 0 || size < sizeof(half))
        return MHD_CONTENT_READER_END_WITH_ERROR;
    memcpy(buffer, half, sizeof(half) - 1);
    return sizeof(half) - 1;
}

static enum MHD_Result cut(struct request *request)
{
    struct MHD_Response *response =
        MHD_create_response_from_callback(4096, 4096, read_half, NULL, NULL);
    return answer_response(request, MHD_HTTP_OK, "application/json", response);
}

/* One long list of strings, well-formed to the end. */
static ssize_t read_huge(void *closure, uint64_t position, char *buffer, size_t size)
{
    static const char piece[] = "\"0123456789ab\",\n";
    (void)closure;
    for (size_t i = 0; i < size; i++)
        buffer[i] = piece[(position + i) % (sizeof(piece) - 1)];
    if (position == 0)
        buffer[0] = '[';
    return (ssize_t)size;
}

static enum MHD_Result huge(struct request *request)
{
    struct MHD_Response *response =
        MHD_create_response_from_callback(HUGE_SIZE, 65536, read_huge, NULL, NULL);
    return answer_response(request, MHD_HTTP_OK, "application/json", response);
}

static enum MHD_Result garbage(struct request *request)
{
    static const char bytes[] = "\x16\x03\x01\x02\x00\x00garbage, not HTTP\r\n\xff\xfe\r\n";
    if (send(fd_of(request), bytes, sizeof(bytes) - 1, MSG_NOSIGNAL) < 0)
        return MHD_NO;
    return MHD_NO;
}

static enum MHD_Result redirect(struct request *request)
{
    struct text to = {0};
    text_format(&to, "http://%s:%u/_redirected", request->server->options.host,
                request->server->port);
    struct MHD_Response *response =
        MHD_create_response_from_buffer(0, (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT);
    MHD_add_response_header(response, "Location", to.at);
    text_free(&to);
    return answer_response(request, MHD_HTTP_FOUND, "text/html", response);
}

enum MHD_Result misbehave(struct request *request, enum misbehaviour misbehaviour)
{
    static enum MHD_Result (*const pages[])(struct request *) = {
        [HANG] = hang,      [HTML] = html,       [TRUNCATED] = truncated, [CUT] = cut,
        [HUGE_BODY] = huge, [GARBAGE] = garbage, [REDIRECT] = redirect,
    };
    if (misbehaviour == REFUSE_SLOTS)
        return MHD_NO;
    return pages[misbehaviour](request);
}
