#include "tests/lib/gossips.h"

#include <stdio.h>
#include <string.h>

#include "proto/gossip_table.h"
#include "tests/lib/check.h"

static void fill_value(const struct gossip_row *row, char *object)
{
    void *at = object + row->offset;
    switch ((enum gossip_type)row->type) {
    case ID: memset(at, 0xfe, WIRE_ID_BYTES); break;
    case TEXT: memset(at, 't', row->maximum); break;
    case NAME: memset(at, 'n', row->maximum); break;
    case LEASE_STATE: *(enum gossip_lease_state *)at = GOSSIP_ORPHAN; break;
    case FLAG: *(bool *)at = true; break;
    case U32: *(uint32_t *)at = (uint32_t)row->maximum; break;
    case U64: *(uint64_t *)at = row->maximum; break;
    case I32: *(int32_t *)at = (int32_t)row->maximum; break;
    case I64: *(int64_t *)at = (int64_t)row->maximum; break;
    case VERSION:
    case OP:
    case MAP:
    case LIST:
    case OUTSIDE: break;
    }
}

static void fill_flat(enum gossip_map_name name, void *object)
{
    memset(object, 0, gossip_maps[name].size);
    for (uint32_t i = 0; i < gossip_maps[name].row_count; i++) {
        fill_value(&gossip_maps[name].rows[i], object);
    }
}

static void fill(enum gossip_map_name name, void *object)
{
    fill_flat(name, object);
    for (uint32_t i = 0; i < gossip_maps[name].row_count; i++) {
        const struct gossip_row *row = &gossip_maps[name].rows[i];
        if (row->type == MAP) {
            fill_flat((enum gossip_map_name)row->maximum, (char *)object + row->offset);
        } else if (row->type == LIST) {
            struct gossip_list list = gossip_list_of(row, object);
            *list.count = list.room;
            for (uint32_t n = 0; n < list.room; n++) {
                fill_flat((enum gossip_map_name)row->maximum,
                          list.first + (size_t)n * list.of->size);
            }
        }
    }
}

void gossips_fill_lease(struct gossip_lease *lease)
{
    fill(GOSSIP_MAP_LEASE, lease);
}

void gossips_fill_claim(struct gossip_claim *claim)
{
    fill(GOSSIP_MAP_CLAIM, claim);
}

void gossips_fill_state(struct gossip_state *state)
{
    fill(GOSSIP_MAP_STATE, state);
    state->part = 0;
    state->parts = 1;
    state->leases = 0;
}

void gossips_fill_beat(struct gossip_beat *beat)
{
    fill(GOSSIP_MAP_BEAT, beat);
}

void gossips_fill_peer(struct gossip_peer *peer)
{
    fill(GOSSIP_MAP_PEER, peer);
}

static void sender(struct gossip_sender *from, const char *name)
{
    memset(from->id, 0xaa, sizeof from->id);
    (void)snprintf(from->name, sizeof from->name, "%s", name);
    from->incarnation = UINT64_C(0x123456789abcdef0);
}

void gossips_lease(struct gossip_lease *lease, uint32_t n)
{
    memset(lease, 0, sizeof *lease);
    (void)snprintf(lease->lease, sizeof lease->lease, "z4:%026u", n);
    lease->state = GOSSIP_DISPATCHED;
    (void)strcpy(lease->host, "m5");
    (void)snprintf(lease->label, sizeof lease->label, "subagent/%u", n % 100);
    lease->pid = 4242 + n;
    lease->units = 1;
    lease->arrived = 1;
    lease->ttl_ms = 30000;
    lease->slot = -1;
    lease->left_ms = 23456;
    lease->age_ms = 81234;
    lease->dispatched_ms = 81100;
    lease->idle_ms = -1;
    lease->token = UINT64_C(1883242496000017) + n;
    lease->place = 4711 + n;
}

void gossips_claim(struct gossip_claim *claim)
{
    memset(claim, 0, sizeof *claim);
    sender(&claim->sender, "m5");
    (void)strcpy(claim->provider, "z4");
    claim->epoch = 1796000000;
    gossips_lease(&claim->lease, 7);
    claim->lease.token = claim->lease.place = 0;
}

void gossips_state(struct gossip_state *state, uint32_t leases)
{
    memset(state, 0, sizeof *state);
    sender(&state->sender, "z4");
    (void)strcpy(state->provider, "z4");
    (void)strcpy(state->url, "http://192.168.1.4:8080");
    state->epoch = 1796000000;
    state->version = 42;
    state->parts = 1;
    state->leases = leases;
    state->age_ms = 80;
    state->slots_total = 16;
    state->in_flight = 3;
    state->queued = -1;
    (void)strcpy(state->health, "ok");
    (void)strcpy(state->signal, "exact");
    (void)strcpy(state->engine, "llama.cpp");
    state->model_count = 1;
    (void)strcpy(state->models[0].name, "qwen3-coder");
    (void)strcpy(state->models[0].state, "loaded");
    state->strangers_ms = -1;
}

void gossips_beat(struct gossip_beat *beat, uint32_t offers)
{
    memset(beat, 0, sizeof *beat);
    sender(&beat->sender, "z4");
    (void)strcpy(beat->version, "0.1.0");
    (void)strcpy(beat->endpoint, "tcp://192.168.1.4:5771");
    (void)strcpy(beat->publish, "tcp://192.168.1.4:5772");
    beat->port = 5771;
    beat->publish_port = 5772;
    beat->peer_count = 2;
    beat->peer_digest = UINT64_C(0xfedcba9876543210);
    beat->offer_count = offers;
    for (uint32_t i = 0; i < offers; i++) {
        struct gossip_offer *offer = &beat->offers[i];
        (void)snprintf(offer->provider, sizeof offer->provider, "z4-%02u", i);
        (void)snprintf(offer->url, sizeof offer->url, "http://192.168.1.4:%u", 8080 + i);
        offer->epoch = 1796000000;
        offer->version = 42 + i;
    }
}
