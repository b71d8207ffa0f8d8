/* Who the others are, what they offer, and who is asked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/fleet.h"
#include "tests/lib/check.h"

static struct fleet *fleet;
static ns_t now;

static void begin(void)
{
    static const uint8_t id[16] = {0xee, 0xee, 0xee};
    if (!fleet)
        fleet = malloc(sizeof *fleet);
    memset(fleet, 0xa5, sizeof *fleet); /* of any content */
    fleet_init(fleet, "m5", id);
    now = 1000 * NS_PER_SEC;
}

static void after_ms(int64_t ms)
{
    now += ms * NS_PER_MS;
}

static const uint8_t *id_of(unsigned number)
{
    static uint8_t ids[4][16];
    static unsigned turn;
    uint8_t *id = ids[turn++ % 4];
    memset(id, 0, 16);
    id[0] = (uint8_t)number;
    id[1] = (uint8_t)(number >> 8);
    return id;
}

struct said {
    bool usual;
    uint64_t incarnation, epoch, version;
    const char *endpoint, *provider, *url;
    unsigned other_offers; /* named q0, q1, … */
};

static uint32_t heard;

static unsigned say(unsigned id, const char *name, const struct said *said)
{
    char names[PROVIDERS_MAX + 8][16];
    struct heard_offer offers[PROVIDERS_MAX + 8];
    struct heard_beat beat = {.name = name,
                              .version = "0.1.0",
                              .endpoint = said->endpoint,
                              .incarnation = said->incarnation ? said->incarnation : 1,
                              .offers = offers};
    memcpy(beat.id, id_of(id), 16);
    if (said->provider)
        offers[beat.offer_count++] = (struct heard_offer){
            said->provider, said->url, said->epoch ? said->epoch : 5, said->version};
    for (unsigned i = 0; i < said->other_offers; i++) {
        snprintf(names[i], sizeof names[i], "q%u", i);
        offers[beat.offer_count++] = (struct heard_offer){names[i], "", 5, 1};
    }
    return fleet_hear(fleet, &beat, now, &heard);
}

#define hear(id, name, ...) say(id, name, &(struct said){.usual = true, __VA_ARGS__})

static uint32_t owner_of(const char *provider)
{
    return fleet_owner(fleet, provider, false, now, NULL);
}

static uint32_t conflicts(const char *provider, bool ours)
{
    uint32_t count;
    fleet_owner(fleet, provider, ours, now, &count);
    return count;
}

static void a_peer_is_told_live_silent_lost_and_back(void **state)
{
    (void)state;
    begin();
    uint32_t told = fleet_tell(fleet, NULL, NULL, "tcp://z4:5771", true, now);
    assert_int_equal(fleet_peer_state(&fleet->peers[told], now), PEER_TOLD);
    assert_int_equal(hear(1, "z4", .endpoint = "tcp://z4:5771"), FLEET_NEWS_PEER);
    assert_int_equal(heard, told);
    const struct fleet_peer *peer = &fleet->peers[told];
    assert_string_equal(peer->name, "z4");
    after_ms(3000);
    assert_int_equal(fleet_peer_state(peer, now), PEER_LIVE);
    after_ms(1);
    assert_int_equal(fleet_peer_state(peer, now), PEER_SILENT);
    assert_int_equal(hear(1, "z4"), FLEET_NEWS_BACK);
    assert_int_equal(hear(1, "z4"), 0);
    after_ms(60001);
    assert_int_equal(fleet_peer_state(peer, now), PEER_LOST);
}

static void our_own_word_comes_back_and_a_twin_is_noticed(void **state)
{
    (void)state;
    begin();
    fleet->incarnation = 7;
    struct heard_beat beat = {.name = "m5", .incarnation = 7};
    memcpy(beat.id, fleet->id, 16);
    assert_int_equal(fleet_hear(fleet, &beat, now, &heard), 0);
    assert_int_equal(heard, FLEET_NOBODY);
    assert_int_equal(fleet->twin_ns, 0);
    beat.incarnation = 8;
    fleet_hear(fleet, &beat, now, &heard);
    assert_true(fleet->twin_ns == now);
    assert_int_equal(fleet_tell(fleet, "m5", fleet->id, "tcp://m5:1", false, now), FLEET_NOBODY);
    assert_int_equal(fleet->peer_count, 0);
}

static void offers_come_and_go_with_beats(void **state)
{
    (void)state;
    begin();
    assert_int_equal(hear(1, "z4", .provider = "big", .url = "http://z4:1", .version = 3),
                     FLEET_NEWS_PEER | FLEET_NEWS_OFFERS | FLEET_NEWS_GAP);
    uint32_t z4 = heard;
    assert_int_equal(owner_of("big"), z4);
    assert_int_equal(owner_of("other"), FLEET_NOBODY);
    assert_string_equal(fleet_offer_of(fleet, z4, "big")->url, "http://z4:1");
    assert_int_equal(fleet_epoch(fleet, "big"), 5);
    fleet_applied(fleet, z4, "big", 5, 3);
    assert_int_equal(hear(1, "z4", .provider = "big", .version = 3), 0);
    assert_int_equal(hear(1, "z4", .provider = "big", .version = 2), 0); /* it came late */
    assert_int_equal(hear(1, "z4", .provider = "big", .version = 4), FLEET_NEWS_GAP);
    fleet_applied(fleet, z4, "big", 5, 4);
    assert_int_equal(hear(1, "z4", .provider = "big", .epoch = 6), FLEET_NEWS_GAP);
    assert_int_equal(fleet_epoch(fleet, "big"), 6);
    assert_int_equal(hear(1, "z4", .provider = "small"), FLEET_NEWS_OFFERS | FLEET_NEWS_GAP);
    assert_int_equal(owner_of("big"), FLEET_NOBODY);
    assert_null(fleet_offer_of(fleet, z4, "big"));
    assert_int_equal(owner_of("small"), z4);
}

static void the_smallest_live_owner_is_asked(void **state)
{
    (void)state;
    begin();
    hear(2, "z9", .provider = "big");
    uint32_t z9 = heard;
    assert_int_equal(conflicts("big", false), 0);
    hear(3, "z4", .provider = "big");
    uint32_t z4 = heard;
    hear(1, "z9", .provider = "big");
    uint32_t other_z9 = heard;
    assert_int_equal(owner_of("big"), z4);
    assert_int_equal(conflicts("big", false), 2);
    assert_int_equal(conflicts("big", true), 3);
    assert_int_equal(fleet_owner(fleet, "big", true, now, NULL), FLEET_SELF); /* m5 < z4 */
    after_ms(2000);
    hear(2, "z9", .provider = "big");
    after_ms(1500); /* z4 and one z9 are silent */
    assert_int_equal(owner_of("big"), z9);
    assert_int_equal(conflicts("big", true), 1);
    hear(1, "z9", .provider = "big");
    assert_int_equal(owner_of("big"), other_z9); /* of two of a name the smaller id */
    after_ms(9000);
    assert_int_equal(owner_of("big"), other_z9); /* nobody is live: the one heard last */
    assert_int_equal(conflicts("big", false), 0);
    assert_int_equal(fleet_owner(fleet, "big", true, now, NULL), FLEET_SELF);
}

static void two_of_a_name_are_reported_while_both_live(void **state)
{
    (void)state;
    begin();
    hear(1, "z4");
    const struct fleet_peer *a = &fleet->peers[heard];
    assert_false(a->same_name);
    hear(2, "z4");
    const struct fleet_peer *b = &fleet->peers[heard];
    assert_true(a->same_name && b->same_name);
    after_ms(2000);
    hear(1, "z4");
    assert_true(a->same_name && b->same_name);
    after_ms(2000);
    hear(1, "z4"); /* the other one is silent */
    assert_false(a->same_name);
    hear(3, "m5"); /* our own */
    assert_true(fleet->peers[heard].same_name);
    hear(3, "m6"); /* and it is mended */
    assert_false(fleet->peers[heard].same_name);
}

static void a_restart_voids_what_was_told_before(void **state)
{
    (void)state;
    begin();
    hear(1, "z4", .provider = "big", .epoch = 9, .version = 70);
    uint32_t z4 = heard;
    fleet_applied(fleet, z4, "big", 9, 70);
    unsigned news = hear(1, "z4", .incarnation = 2, .provider = "big", .epoch = 8, .version = 1);
    assert_int_equal(news, FLEET_NEWS_RESTARTED | FLEET_NEWS_GAP);
    assert_int_equal(fleet_offer_of(fleet, z4, "big")->epoch, 8);
    assert_int_equal(fleet_offer_of(fleet, z4, "big")->applied_version, 0);
    assert_int_equal(hear(1, "z4", .incarnation = 1), 0); /* late: it changes nothing */
    assert_int_equal(heard, FLEET_NOBODY);
    assert_int_equal(owner_of("big"), z4);
    assert_false(fleet->peers[z4].same_name);
}

/* Two machines with one state directory: neither flaps. */
static void twins_do_not_take_turns(void **state)
{
    (void)state;
    begin();
    uint32_t restarts = 0;
    for (int i = 0; i < 20; i++) {
        restarts += (hear(1, "z4", .incarnation = 1) & FLEET_NEWS_RESTARTED) != 0;
        restarts += (hear(1, "z4", .incarnation = 2) & FLEET_NEWS_RESTARTED) != 0;
        after_ms(1000);
    }
    assert_int_equal(restarts, 1);
    hear(1, "z4", .incarnation = 1);
    assert_true(fleet->peers[0].same_name);
    after_ms(3500); /* the one that was listened to is gone */
    assert_int_equal(hear(1, "z4", .incarnation = 1), FLEET_NEWS_RESTARTED | FLEET_NEWS_BACK);
}

static void endpoints_are_kept_and_found_again(void **state)
{
    (void)state;
    begin();
    uint32_t told = fleet_tell(fleet, "z4", id_of(1), "tcp://z4:5771", false, now);
    assert_int_equal(fleet_tell(fleet, "z4", NULL, "tcp://z4:5771", false, now), told);
    hear(1, "z4");
    assert_int_equal(heard, told);
    assert_string_equal(fleet->peers[told].endpoint, "tcp://z4:5771");
    fleet_tell(fleet, "z4", id_of(1), "tcp://elsewhere:1", false,
               now); /* others do not know better */
    assert_string_equal(fleet->peers[told].endpoint, "tcp://z4:5771");
    uint32_t alias = fleet_tell(fleet, NULL, NULL, "tcp://10.0.0.4:5771", true, now);
    assert_int_not_equal(alias, told);
    assert_int_equal(hear(1, "z4", .endpoint = "tcp://10.0.0.4:5771"), FLEET_NEWS_ENDPOINT);
    assert_int_equal(heard, told);
    assert_false(fleet->peers[alias].in_use);
    assert_true(fleet->peers[told].is_static);
    assert_int_equal(fleet_tell(fleet, NULL, NULL, "", false, now), FLEET_NOBODY);
}

/* The machine at a configured address was set up anew: it has another id. */
static void a_configured_address_outlives_whoever_answers_there(void **state)
{
    (void)state;
    begin();
    fleet_tell(fleet, NULL, NULL, "tcp://z4:5771", true, now);
    hear(1, "z4", .endpoint = "tcp://z4:5771");
    uint32_t first = heard;
    after_ms(10000);
    hear(2, "z4", .endpoint = "tcp://z4:5771");
    assert_int_not_equal(heard, first);
    assert_true(fleet->peers[heard].is_static);
    after_ms((FLEET_LOST_S + 20) * 1000);
    assert_int_equal(fleet_prune(fleet, now), 1); /* the first */
    assert_false(fleet->peers[first].in_use);
}

static void the_lost_are_dropped_and_the_forgotten_too(void **state)
{
    (void)state;
    begin();
    fleet_tell(fleet, "s", NULL, "tcp://s:1", true, now);
    hear(7, "s", .endpoint = "tcp://s:1", .provider = "stays");
    uint32_t kept = heard;
    hear(1, "z4", .provider = "big");
    hear(2, "z5", .provider = "big");
    after_ms(FLEET_LOST_S * 1000);
    assert_int_equal(fleet_prune(fleet, now), 0);
    after_ms(1000);
    hear(2, "z5", .provider = "big");
    assert_int_equal(fleet_prune(fleet, now), 1);
    assert_int_equal(fleet->peers[owner_of("big")].id[0], 2);
    assert_false(fleet_forget(fleet, "z4"));
    assert_false(fleet_forget(fleet, ""));
    assert_true(fleet_forget(fleet, "02000000000000000000000000000000"));
    assert_int_equal(owner_of("big"), FLEET_NOBODY);
    assert_true(fleet_forget(fleet, "s"));
    assert_true(fleet->peers[kept].in_use); /* it is configured: its address stays */
    assert_int_equal(fleet_peer_state(&fleet->peers[kept], now), PEER_TOLD);
    assert_int_equal(owner_of("stays"), FLEET_NOBODY);
    hear(7, "s", .endpoint = "tcp://s:1", .provider = "stays");
    assert_int_equal(heard, kept);
}

static void after_sleep_nobody_is_believed_until_heard(void **state)
{
    (void)state;
    begin();
    hear(1, "z4", .provider = "big", .version = 3);
    uint32_t z4 = heard;
    fleet_applied(fleet, z4, "big", 5, 3);
    fleet_distrust(fleet);
    assert_int_equal(fleet_peer_state(&fleet->peers[z4], now), PEER_SILENT);
    assert_int_equal(hear(1, "z4", .provider = "big", .version = 3),
                     FLEET_NEWS_BACK | FLEET_NEWS_GAP);
    assert_int_equal(fleet_peer_state(&fleet->peers[z4], now), PEER_LIVE);
}

static void the_digest_is_of_a_set(void **state)
{
    (void)state;
    uint32_t count;
    begin();
    hear(1, "a");
    hear(2, "b");
    fleet_tell(fleet, "c", id_of(3), "tcp://c:1", false, now); /* never heard: not in it */
    uint64_t digest = fleet_digest(fleet, &count);
    assert_int_equal(count, 3);
    uint8_t us[16];
    memcpy(us, fleet->id, 16);
    fleet_init(fleet, "b", id_of(2)); /* as the second of them sees it */
    struct heard_beat beat = {.name = "m5", .incarnation = 1};
    memcpy(beat.id, us, 16);
    fleet_hear(fleet, &beat, now, &heard);
    assert_true(fleet_digest(fleet, NULL) != digest);
    hear(1, "a");
    assert_true(fleet_digest(fleet, &count) == digest);
    assert_int_equal(count, 3);
}

static void a_full_table_counts_whom_it_refuses(void **state)
{
    (void)state;
    begin();
    char name[NAME_SIZE];
    for (unsigned i = 0; i < FLEET_PEERS_MAX; i++) {
        snprintf(name, sizeof name, "p%u", i);
        hear(i + 1, name, .other_offers = i < 100 ? PROVIDERS_MAX + 8 : 0);
        assert_int_equal(heard, i);
    }
    assert_int_equal(fleet->offer_count, FLEET_OFFERS_MAX);
    assert_int_equal(fleet->refused, 100 * PROVIDERS_MAX - FLEET_OFFERS_MAX);
    uint64_t before = fleet->refused;
    hear(9999, "one-more");
    assert_int_equal(heard, FLEET_NOBODY);
    assert_int_equal(fleet_tell(fleet, "x", NULL, "tcp://x:1", true, now), FLEET_NOBODY);
    assert_int_equal(fleet->refused, before + 2);
    assert_true(fleet_forget(fleet, "p0"));
    hear(9999, "one-more", .other_offers = PROVIDERS_MAX);
    assert_int_equal(heard, 0);
    assert_non_null(fleet_offer_of(fleet, 0, "q63"));
}

static void nonsense_is_passed_over(void **state)
{
    (void)state;
    begin();
    hear(0, "nobody");
    assert_int_equal(heard, FLEET_NOBODY);
    hear(1, "no name at all");
    assert_int_equal(heard, FLEET_NOBODY);
    assert_int_equal(hear(1, "z4", .provider = "no such name"), FLEET_NEWS_PEER);
    assert_int_equal(hear(1, "z4", .provider = "big", .epoch = UINT64_MAX), 0);
    assert_int_equal(fleet_epoch(fleet, "big"), 0);
    char endless[2000];
    memset(endless, 'x', sizeof endless);
    endless[sizeof endless - 1] = '\0';
    hear(1, "z4", .endpoint = endless, .provider = "big", .url = endless);
    assert_string_equal(fleet->peers[heard].endpoint, "");
    assert_int_equal(strlen(fleet_offer_of(fleet, heard, "big")->url), FLEET_URL_SIZE - 1);
    assert_int_equal(fleet_tell(fleet, NULL, NULL, endless, true, now), FLEET_NOBODY);
    fleet_applied(fleet, heard, "big", UINT64_MAX, 1);
    fleet_applied(fleet, FLEET_NOBODY, "big", 1, 1);
    assert_int_equal(fleet_offer_of(fleet, heard, "big")->applied_epoch, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_is_told_live_silent_lost_and_back),
        cmocka_unit_test(our_own_word_comes_back_and_a_twin_is_noticed),
        cmocka_unit_test(offers_come_and_go_with_beats),
        cmocka_unit_test(the_smallest_live_owner_is_asked),
        cmocka_unit_test(two_of_a_name_are_reported_while_both_live),
        cmocka_unit_test(a_restart_voids_what_was_told_before),
        cmocka_unit_test(twins_do_not_take_turns),
        cmocka_unit_test(endpoints_are_kept_and_found_again),
        cmocka_unit_test(a_configured_address_outlives_whoever_answers_there),
        cmocka_unit_test(the_lost_are_dropped_and_the_forgotten_too),
        cmocka_unit_test(after_sleep_nobody_is_believed_until_heard),
        cmocka_unit_test(the_digest_is_of_a_set),
        cmocka_unit_test(a_full_table_counts_whom_it_refuses),
        cmocka_unit_test(nonsense_is_passed_over),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(fleet);
    return failed;
}
