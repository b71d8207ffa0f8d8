/* The network: packets that are lost, doubled, delayed, overtaken, cut off, played again, and now and
 * then go through the bytes of the wire, which may be damaged. Damage that the codec notices is a loss; what
 * it cannot notice is one too, for TCP has a checksum: only that decoding is safe is shown. */
#include <stdlib.h>

#include "tests/sim/sim.h"

struct sim_network network;
static ns_t cuts[SIM_HOSTS_MAX][SIM_HOSTS_MAX]; /* true, until: nothing goes this way */
static struct sim_packet *old_packets[64];
static uint32_t old_to[64];

struct sim_packet *packet_new(enum sim_packet_kind kind, uint32_t from)
{
    struct sim_packet *packet = calloc(1, sizeof *packet);
    packet->kind = kind;
    packet->from = from;
    packet->references = 1;
    return packet;
}

void packet_free(struct sim_packet *packet)
{
    if (--packet->references > 0)
        return;
    free(packet->message);
    free(packet->claim);
    free(packet->beat);
    free(packet->state);
    free(packet->leases);
    free(packet);
}

void net_cut(uint32_t from, uint32_t to, ns_t until)
{
    if (cuts[from][to] < until)
        cuts[from][to] = until;
    if (network.dirty_until < until)
        network.dirty_until = until;
}

void net_heal(void)
{
    memset(cuts, 0, sizeof cuts);
    network = (struct sim_network){.codec = network.codec, .way_ms = 5};
    for (uint32_t i = 0; i < 64; i++)
        if (old_packets[i]) {
            packet_free(old_packets[i]);
            old_packets[i] = NULL;
        }
}

/* Nothing was lost on the way of these two of late, nor will be. */
bool net_is_clean(uint32_t a, uint32_t b)
{
    return network.loss == 0 && network.corrupt == 0 && cuts[a][b] <= sim_now &&
           cuts[b][a] <= sim_now;
}

/* ---- through the bytes ----------------------------------------------------------------------- */

static uint8_t bytes[MESSAGE_BYTES_MAX], again[MESSAGE_BYTES_MAX];
static struct message message_read;
static struct gossip_claim claim_read;
static struct gossip_beat beat_read;
static struct gossip_state state_read;
static struct gossip_lease leases_read[SIM_STATE_LEASES];

static size_t write(const struct sim_packet *packet, void *to)
{
    size_t used = 0;
    uint32_t next = 0;
    enum wire_fault fault = WIRE_OK;
    switch (packet->kind) {
    case PACKET_MESSAGE:
        fault = message_encode(packet->message, to, MESSAGE_BYTES_MAX, &used, NULL);
        break;
    case PACKET_CLAIM: fault = gossip_claim_encode(packet->claim, to, WIRE_STATE_MAX, &used); break;
    case PACKET_BEAT: fault = gossip_beat_encode(packet->beat, to, WIRE_STATE_MAX, &used); break;
    case PACKET_STATE:
        fault = gossip_state_encode(packet->state, packet->leases, packet->lease_count, &next, to,
                                    WIRE_STATE_MAX, &used);
        break;
    }
    SIM_MUST(fault == WIRE_OK);
    return used;
}

static enum wire_fault read(enum sim_packet_kind kind, const void *from, size_t size,
                            uint32_t *count)
{
    switch (kind) {
    case PACKET_MESSAGE: return message_decode(from, size, &message_read, NULL);
    case PACKET_CLAIM: return gossip_claim_decode(from, size, &claim_read);
    case PACKET_BEAT: return gossip_beat_decode(from, size, &beat_read);
    case PACKET_STATE:
        return gossip_state_decode(from, size, &state_read, leases_read, SIM_STATE_LEASES, count);
    }
    return WIRE_EOP;
}

/* What was written, read and written again is the same to the last byte. */
static void go_through(struct sim_packet *packet)
{
    uint32_t count = 0;
    size_t size = write(packet, bytes);
    SIM_MARK(net_codec);
    SIM_MUST(read(packet->kind, bytes, size, &count) == WIRE_OK);
    struct sim_packet reread = {.kind = packet->kind,
                                .message = &message_read,
                                .claim = &claim_read,
                                .beat = &beat_read,
                                .state = &state_read,
                                .leases = leases_read,
                                .lease_count = count};
    SIM_MUST(write(&reread, again) == size && memcmp(bytes, again, size) == 0);
    if (packet->message)
        *packet->message = message_read;
    if (packet->claim)
        *packet->claim = claim_read;
    if (packet->beat)
        *packet->beat = beat_read;
}

static void damage(const struct sim_packet *packet)
{
    uint32_t count = 0;
    size_t size = write(packet, bytes);
    if (rand_one_in(2)) {
        SIM_MARK(net_truncate);
        SIM_MUST(read(packet->kind, bytes, rand_below((uint32_t)size), &count) != WIRE_OK);
        return;
    }
    SIM_MARK(net_corrupt);
    for (uint32_t i = rand_from(1, 4); i-- > 0;)
        bytes[rand_below((uint32_t)size)] ^= (uint8_t)(1u << rand_below(8));
    if (read(packet->kind, bytes, size, &count) != WIRE_OK)
        SIM_MARK(net_corrupt_refused);
}

/* ---- the ways -------------------------------------------------------------------------------- */

static void deliver(struct sim_packet *packet, uint32_t to)
{
    ns_t way = (ns_t)rand_from(100, network.way_ms * 1000) * 1000;
    if (rand_permille(network.reorder)) {
        SIM_MARK(net_reorder);
        way += (ns_t)rand_from(1, 60) * SIM_MS;
    }
    if (network.way_ms > 20)
        SIM_MARK(net_delay);
    packet->references++;
    sim_at(sim_now + way, SIM_PACKET, to, 0, hosts[to].life, packet);
}

static void keep_old(struct sim_packet *packet, uint32_t to)
{
    uint32_t at = rand_below(64);
    if (old_packets[at])
        packet_free(old_packets[at]);
    packet->references++;
    old_packets[at] = packet;
    old_to[at] = to;
}

static void play_old(void)
{
    uint32_t at = rand_below(64);
    if (!old_packets[at])
        return;
    SIM_MARK(net_replay_old);
    deliver(old_packets[at], old_to[at]);
}

static void send_to(struct sim_packet *packet, uint32_t to)
{
    if (cuts[packet->from][to] > sim_now)
        return;
    if (rand_permille(network.loss)) {
        SIM_MARK(net_loss);
        return;
    }
    if (rand_permille(network.corrupt)) {
        damage(packet);
        return;
    }
    if (rand_permille(network.replay)) {
        keep_old(packet, to);
        play_old();
    }
    deliver(packet, to);
    if (rand_permille(network.duplicate)) {
        SIM_MARK(net_duplicate);
        deliver(packet, to);
    }
}

void net_send(struct sim_packet *packet, uint32_t to)
{
    if (rand_permille(network.codec))
        go_through(packet);
    send_to(packet, to);
    packet_free(packet);
}

void net_publish(struct sim_packet *packet)
{
    if (rand_permille(network.codec))
        go_through(packet);
    for (uint32_t to = 0; to < host_count; to++)
        if (to != packet->from)
            send_to(packet, to);
    packet_free(packet);
}

/* The kernel keeps what comes for a process that is stopped; a host that is down gets nothing. */
void net_event(const struct sim_event *event)
{
    struct sim_host *host = &hosts[event->host];
    struct sim_packet *packet = event->what;
    if (!host->up || !host->agent_up || event->life != host->life) {
        SIM_MARK(net_to_dead_host);
        if (host->up && event->life == host->life && packet->kind == PACKET_MESSAGE &&
            packet->message->reply)
            holder_reply(event->host, packet->message, event); /* to a process, not to the agent */
        packet_free(packet);
        return;
    }
    bool to_agent = packet->kind != PACKET_MESSAGE || !packet->message->reply;
    if (to_agent && host->paused_until > sim_now) {
        SIM_MARK(net_to_paused_host);
        sim_at(sim_earlier(host->paused_until, sim_now + 250 * SIM_MS), SIM_PACKET, event->host, 0,
               event->life, packet);
        return;
    }
    if (to_agent)
        hear_packet(event->host, event);
    else
        holder_reply(event->host, packet->message, event);
    packet_free(packet);
}
