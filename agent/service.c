#define _GNU_SOURCE
#include "agent/service.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "broker/error.h"
#include "broker/host_fork.h"

/* Frames before the message: where it came from, what a REQ or a foreign peer puts behind that, and
 * the empty one. */
#define ENVELOPE_MAX 4

/* Where an answer goes that is given later: the frames of its envelope, one behind the other. */
struct service_asker {
    struct service_asker *next, **link; /* in the service's list */
    unsigned count;
    size_t sizes[ENVELOPE_MAX];
    uint8_t bytes[];
};

struct service {
    void *context, *socket;
    service_handler *handler;
    void *arg;
    struct service_counters counters;
    uint32_t generation; /* of forks */
    dev_t device;        /* of the socket's file, which tells whether it is still ours */
    ino_t inode;
    zmq_msg_t envelope[ENVELOPE_MAX];
    unsigned envelope_count;
    bool skipping;   /* the rest of a message with too many frames */
    zmq_msg_t *body; /* of the request that the handler has */
    struct service_asker *kept;
    unsigned kept_count;
    atomic_size_t outstanding; /* bytes of replies that libzmq has; its thread takes away */
    struct message request, reply;
    uint8_t packed[MESSAGE_BYTES_MAX];
    char endpoint[IPC_ENDPOINT_SIZE]; /* "" none */
};

static const char *path_of(const struct service *self)
{
    return self->endpoint + strlen(IPC_SCHEME);
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* What mode the socket gets in this directory. */
static int socket_mode(const char *directory, mode_t *mode)
{
    struct stat st;
    if (stat(directory, &st) != 0 || !S_ISDIR(st.st_mode)) {
        return LEASE_EDIR;
    }
    if (st.st_mode & S_IWOTH) {
        return LEASE_EPERM;
    }
    bool shared = st.st_mode & S_ISGID && (st.st_mode & S_IRWXG) == S_IRWXG;
    *mode = shared ? 0660 : 0600;
    return 0;
}

/* Between bind and chmod the umask's mode holds; the directory's keeps others out meanwhile. */
static int bind_socket(struct service *self, mode_t mode)
{
    struct stat st;
    if (ipc_bind(self->socket, self->endpoint) != 0) {
        return errno == EACCES || errno == EROFS || errno == EPERM ? LEASE_EPERM : LEASE_EIO;
    }
    if (chmod(path_of(self), mode) != 0 || lstat(path_of(self), &st) != 0) {
        return LEASE_EIO;
    }
    self->device = st.st_dev;
    self->inode = st.st_ino;
    if (!S_ISSOCK(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 0777) != mode) {
        return LEASE_EPERM;
    }
    return 0;
}

/* Mandatory: an asker that has left is an error that can be counted, not silence. Handover: one that
 * calls itself by a name and comes back is not shut out until its old connection is found dead. */
static int open_socket(struct service *self)
{
    int error = ipc_open(ZMQ_ROUTER, &self->context, &self->socket);
    if (error != 0) {
        return error;
    }
    if (ipc_option(self->socket, ZMQ_ROUTER_MANDATORY, 1) != 0 ||
        ipc_option(self->socket, ZMQ_ROUTER_HANDOVER, 1) != 0 ||
        ipc_option(self->socket, ZMQ_RCVHWM, SERVICE_PENDING_MAX) != 0) {
        return LEASE_EIO;
    }
    return tcp_options(self->socket);
}

static int open_in(struct service *self, const char *directory)
{
    mode_t mode = 0;
    int error = 0;
    if (directory) {
        error = ipc_endpoint(directory, self->endpoint);
        if (error == 0) {
            error = socket_mode(directory, &mode);
        }
    }
    if (error == 0) {
        error = open_socket(self);
    }
    return error == 0 && directory ? bind_socket(self, mode) : error;
}

int service_open(const char *directory, service_handler *handler, void *arg,
                 struct service **service)
{
    struct service *self = calloc(1, sizeof *self);
    if (!self) {
        return LEASE_ENOMEM;
    }
    host_fork_watch();
    self->generation = host_fork_generation();
    self->handler = handler;
    self->arg = arg;
    int error = open_in(self, directory);
    if (error != 0) {
        service_close(&self);
        return error;
    }
    *service = self;
    return 0;
}

int service_bind(struct service *self, const char *endpoint, char bound[TCP_ENDPOINT_SIZE])
{
    if (self->generation != host_fork_generation()) {
        return LEASE_EFORK;
    }
    return tcp_listen(self->socket, endpoint, bound);
}

static void drop_envelope(struct service *self)
{
    while (self->envelope_count > 0) {
        (void)zmq_msg_close(&self->envelope[--self->envelope_count]);
    }
}

/* While we still listen: as long as we do, no other file can have our inode's number. */
static void take_name_away(const struct service *self)
{
    struct stat st;
    if (self->inode != 0 && lstat(path_of(self), &st) == 0 && st.st_dev == self->device &&
        st.st_ino == self->inode) {
        (void)unlink(path_of(self));
    }
}

void service_close(struct service **self_p)
{
    struct service *self = *self_p;
    *self_p = NULL;
    if (!self || self->generation != host_fork_generation()) {
        return;
    }
    take_name_away(self);
    drop_envelope(self);
    while (self->kept) {
        struct service_asker *asker = self->kept;
        service_answer(self, &asker, NULL);
    }
    ipc_close(&self->context, &self->socket);
    free(self);
}

void *service_socket(struct service *self)
{
    return self->socket;
}

struct service_counters service_counters(const struct service *self)
{
    return self->counters;
}

/* ---- answering ------------------------------------------------------------------------------- */

static void say_no(struct message *reply, int error, const char *text)
{
    reply->ok = false;
    reply->error = error;
    if (reply->text[0] == '\0') {
        wire_copy_text(reply->text, sizeof reply->text, text);
    }
}

/* Tells the asker what is wrong with its request. */
static void refuse(struct service *self, enum wire_fault fault, const char *field)
{
    char text[128];
    self->counters.refused++;
    (void)snprintf(text, sizeof text, "bad request: '%s' is %s", field ? field : "",
                   wire_fault_text(fault));
    message_reply(&self->reply, &self->request);
    say_no(&self->reply, LEASE_EINVAL, text);
}

/* Whether the reply is to be sent now. */
static bool handle(struct service *self, zmq_msg_t *body)
{
    self->counters.answered++;
    message_reply(&self->reply, &self->request);
    self->body = body;
    int error = self->handler(self->arg, &self->request, &self->reply);
    self->body = NULL;
    if (error == SERVICE_LATER) {
        return false;
    }
    self->reply.ok = error == 0;
    self->reply.error = 0;
    if (error != 0) {
        say_no(&self->reply, error, lease_error_text(error));
    }
    return true;
}

/* Packs the reply. What the handler filled in may be beyond the limits of the wire; then the asker
 * hears at least that it failed. */
static bool pack(struct service *self, const struct message *reply, size_t *size)
{
    if (message_encode(reply, self->packed, sizeof self->packed, size, NULL) == WIRE_OK) {
        return true;
    }
    self->counters.mended++;
    struct message mended = {.op = reply->op, .reply = true};
    memcpy(mended.req, reply->req, sizeof mended.req);
    say_no(&mended, LEASE_EINTERNAL, lease_error_text(LEASE_EINTERNAL));
    return message_encode(&mended, self->packed, sizeof self->packed, size, NULL) == WIRE_OK;
}

static int send_frame(void *socket, zmq_msg_t *frame, int flags)
{
    int rc;
    do {
        rc = zmq_msg_send(frame, socket, flags | ZMQ_DONTWAIT);
    } while (rc < 0 && errno == EINTR);
    return rc;
}

/* In front of the bytes of a reply while libzmq has them. */
struct held {
    atomic_size_t *outstanding;
    size_t size;
};

static void let_go(void *data, void *hint)
{
    struct held *held = hint;
    (void)data;
    (void)atomic_fetch_sub_explicit(held->outstanding, held->size, memory_order_relaxed);
    free(held);
}

/* What was packed, as a message; false where there is no room for it, or no memory. */
static bool make_body(struct service *self, size_t size, zmq_msg_t *body)
{
    size_t room = SERVICE_OUTSTANDING_MAX / (size > MESSAGE_PACKED_MAX ? 2 : 1);
    if (atomic_load_explicit(&self->outstanding, memory_order_relaxed) + size > room) {
        return false;
    }
    struct held *held = malloc(sizeof *held + size);
    if (!held) {
        return false;
    }
    *held = (struct held){&self->outstanding, size};
    memcpy(held + 1, self->packed, size);
    if (zmq_msg_init_data(body, held + 1, size, let_go, held) != 0) {
        free(held);
        return false;
    }
    (void)atomic_fetch_add_explicit(&self->outstanding, size, memory_order_relaxed);
    return true;
}

/* The first frame alone can fail: behind it the ROUTER takes all, or drops all if the asker goes
 * meanwhile. So the message must be there before it. */
static void send_reply(struct service *self, zmq_msg_t *envelope, unsigned count, size_t size)
{
    zmq_msg_t body;
    if (!make_body(self, size, &body)) {
        self->counters.full++;
        return;
    }
    for (unsigned i = 0; i < count; i++) {
        if (send_frame(self->socket, &envelope[i], ZMQ_SNDMORE) < 0) {
            *(errno == EAGAIN ? &self->counters.full : &self->counters.gone) += 1;
            (void)zmq_msg_close(&body);
            return;
        }
    }
    if (send_frame(self->socket, &body, 0) < 0) {
        self->counters.gone++;
        (void)zmq_msg_close(&body);
    }
}

static void answer(struct service *self, zmq_msg_t *body)
{
    size_t size;
    const char *field = NULL;
    enum wire_fault fault =
        message_decode(zmq_msg_data(body), zmq_msg_size(body), &self->request, &field);
    bool readable = fault == WIRE_OK || fault >= WIRE_EVERSION;
    if (!readable || self->request.reply) { /* answering replies could go on for ever */
        self->counters.dropped++;
        return;
    }
    if (fault != WIRE_OK) {
        refuse(self, fault, field);
    } else if (!handle(self, body)) {
        return;
    }
    if (pack(self, &self->reply, &size)) {
        send_reply(self, self->envelope, self->envelope_count, size);
    }
}

/* ---- answering later ------------------------------------------------------------------------- */

struct service_asker *service_keep(struct service *self)
{
    size_t size = 0;
    for (unsigned i = 0; i < self->envelope_count; i++) {
        size += zmq_msg_size(&self->envelope[i]);
    }
    bool fits = size <= SERVICE_ENVELOPE_MAX && self->kept_count < SERVICE_LATER_MAX;
    struct service_asker *asker = fits ? malloc(sizeof *asker + size) : NULL;
    if (!asker) {
        return NULL;
    }
    uint8_t *to = asker->bytes;
    asker->count = self->envelope_count;
    for (unsigned i = 0; i < asker->count; i++) {
        asker->sizes[i] = zmq_msg_size(&self->envelope[i]);
        memcpy(to, zmq_msg_data(&self->envelope[i]), asker->sizes[i]);
        to += asker->sizes[i];
    }
    asker->next = self->kept;
    asker->link = &self->kept;
    if (asker->next) {
        asker->next->link = &asker->next;
    }
    self->kept = asker;
    self->kept_count++;
    self->counters.later++;
    return asker;
}

/* Frames of at most SERVICE_ENVELOPE_MAX bytes: without memory for them they stay empty, and the
 * ROUTER knows nobody of that name. */
static void send_later(struct service *self, const struct service_asker *asker, size_t size)
{
    zmq_msg_t envelope[ENVELOPE_MAX];
    const uint8_t *from = asker->bytes;
    for (unsigned i = 0; i < asker->count; i++) {
        if (zmq_msg_init_size(&envelope[i], asker->sizes[i]) != 0) {
            (void)zmq_msg_init(&envelope[i]);
        } else {
            memcpy(zmq_msg_data(&envelope[i]), from, asker->sizes[i]);
        }
        from += asker->sizes[i];
    }
    send_reply(self, envelope, asker->count, size);
    for (unsigned i = 0; i < asker->count; i++) {
        (void)zmq_msg_close(&envelope[i]);
    }
}

void service_answer(struct service *self, struct service_asker **asker_p,
                    const struct message *reply)
{
    struct service_asker *asker = *asker_p;
    size_t size;
    *asker_p = NULL;
    if (!asker || self->generation != host_fork_generation()) {
        return;
    }
    if (reply && pack(self, reply, &size)) {
        send_later(self, asker, size);
    }
    *asker->link = asker->next;
    if (asker->next) {
        asker->next->link = asker->link;
    }
    self->kept_count--;
    free(asker);
}

/* What libzmq tells of a peer is an address by TCP, and NODE:UID:GID:PID by ipc. */
const char *service_asker_address(const struct service *self)
{
    const char *peer = self->body ? zmq_msg_gets(self->body, "Peer-Address") : NULL;
    return peer && !service_is_local(self) ? peer : "";
}

bool service_is_local(const struct service *self)
{
    struct in_addr four;
    struct in6_addr six;
    const char *peer = self->body ? zmq_msg_gets(self->body, "Peer-Address") : NULL;
    return peer && strchr(peer, ':') && !strchr(peer, '%') &&
           inet_pton(AF_INET, peer, &four) != 1 && inet_pton(AF_INET6, peer, &six) != 1;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* [id][message] of a DEALER, or [id]...[empty][message]. */
static bool is_envelope(struct service *self)
{
    unsigned n = self->envelope_count;
    return n == 1 || (n > 1 && zmq_msg_size(&self->envelope[n - 1]) == 0);
}

static void skip(struct service *self, bool more)
{
    self->skipping = more;
    self->counters.dropped += !more;
}

/* Takes a frame, which is the caller's to close afterwards. */
static void take(struct service *self, zmq_msg_t *frame)
{
    bool more = zmq_msg_more(frame) != 0;
    if (self->skipping) {
        skip(self, more);
    } else if (more && self->envelope_count < ENVELOPE_MAX) {
        zmq_msg_t *kept = &self->envelope[self->envelope_count++];
        (void)zmq_msg_init(kept);
        (void)zmq_msg_move(kept, frame);
    } else if (more || !is_envelope(self)) {
        drop_envelope(self);
        skip(self, more);
    } else {
        answer(self, frame);
        drop_envelope(self);
    }
}

int service_run(struct service *self)
{
    if (self->generation != host_fork_generation()) {
        return LEASE_EFORK;
    }
    for (unsigned n = 0; n < SERVICE_FRAMES_MAX; n++) {
        zmq_msg_t frame;
        (void)zmq_msg_init(&frame);
        if (zmq_msg_recv(&frame, self->socket, ZMQ_DONTWAIT) >= 0) {
            take(self, &frame);
        } else if (errno != EINTR) {
            int error = errno == EAGAIN ? 0 : LEASE_EIO;
            (void)zmq_msg_close(&frame);
            return error;
        }
        (void)zmq_msg_close(&frame);
    }
    return 0;
}
