/* Processes that are killed at any instant: the book is never torn, its lock never stuck, no token and
 * no lease is given out twice, and in the end everything comes back. tests/crash kills at each
 * instruction of one writer; here many of them meet.
 *
 *   LEASEHOLD_KILL_MS  for how long, 10,000 by default
 *   LEASEHOLD_SEED     of who is killed when; printed */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "broker/host_random.h"
#include "broker/host_table.h"
#include "tests/lib/host_stage.h"

#define MANY "x=static:4,own=yes"
enum { MORTALS = 16 };

/* What was given out, by everybody: a bit each, counted from the first. Whoever speaks next raises the
 * epoch, so that tokens lie far apart: most of this is never touched. */
#define TOKENS_MAX   (UINT64_C(1) << 34)
#define COUNTERS_MAX (UINT64_C(1) << 28)
struct given {
    uint64_t first_token, first_counter;
    _Atomic uint64_t twice, outside;
    _Atomic uint64_t tokens[TOKENS_MAX / 64], counters[COUNTERS_MAX / 64];
};
static struct given *given;

static void note_given(_Atomic uint64_t *bits, uint64_t max, uint64_t at)
{
    if (at >= max)
        atomic_fetch_add(&given->outside, 1);
    else if (atomic_fetch_or(&bits[at / 64], UINT64_C(1) << at % 64) >> at % 64 & 1)
        atomic_fetch_add(&given->twice, 1);
}

static uint64_t counter_of(const char *text)
{
    char provider[NAME_SIZE];
    struct lease_id id = {0, 0};
    must(lease_id_parse(text, provider, &id));
    return id.counter;
}

static int mortal(int index)
{
    lease_agent_t *agent = stage_open(MANY, 0);
    must(agent);
    for (;;) {
        struct lease_request request = {.size = sizeof request, .wait_ms = 5000};
        struct lease lease;
        if (lease_acquire(agent, "x", &request, &lease, NULL) < 0)
            continue;
        note_given(given->tokens, TOKENS_MAX, lease.token - given->first_token);
        note_given(given->counters, COUNTERS_MAX, counter_of(lease.id) - given->first_counter);
        if (lease_verify(agent, lease.id, NULL, &lease, NULL) == 0)
            atomic_fetch_add(&board->count[index], 1);
        lease_release(agent, lease.id, 0);
    }
}

struct maxima {
    uint64_t token, counter, place, epoch;
};

/* An own view of the book, under its lock: every cell is whole, no more is in use than there is, and
 * numbers only grow. */
static void look_at_the_book(struct host_table *table, struct book *book, struct maxima *last)
{
    assert_int_equal(table_begin(&table->table, book, STAGE_PATIENT), 0);
    book_check(book);
    uint32_t units = book->count[RECORD_DISPATCHED] + book->count[RECORD_ORPHAN];
    uint32_t damaged = table->damaged;
    assert_true(book->token_max >= last->token && book->counter_max >= last->counter);
    assert_true(book->place_max >= last->place && book->head.epoch >= last->epoch);
    *last = (struct maxima){book->token_max, book->counter_max, book->place_max, book->head.epoch};
    table_end(&table->table);
    assert_int_equal(damaged, 0);
    assert_true(units <= 4);
}

/* By looking alone: nobody is refused who would have to look for the dead. */
static bool all_is_back(void *agent)
{
    struct lease_view view;
    return stage_look(agent, "x", &view) && view.available == 4 &&
           view.leased + view.dispatched + view.waiting + view.orphans == 0;
}

static void test_killed_at_any_instant(void **state)
{
    (void)state;
    static struct book book;
    static struct host_table table;
    struct maxima last = {0, 0, 0, 0};
    pid_t pids[MORTALS];
    struct book_settings settings;
    lease_agent_t *agent = stage_open(MANY, LEASE_OPEN_CLIENT);
    struct lease lease;
    assert_int_equal(lease_acquire(agent, "x", NULL, &lease, NULL), 0);
    given = mmap(NULL, sizeof *given, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(given != MAP_FAILED);
    given->first_token = lease.token;
    given->first_counter = counter_of(lease.id);
    assert_int_equal(lease_release(agent, lease.id, 0), 0);
    book_settings_default(&settings);
    settings.slots = 4;
    book_init(&book, "x", &settings);
    struct host_table_options options = {.instance = 1, .epoch = 1, .mode = 0600};
    int dir = open(stage_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(host_table_open(&table, dir, "x", &book, &options), 0);

    uint64_t seed = (uint64_t)stage_number("LEASEHOLD_SEED", (long)(host_random_u64() >> 2));
    int64_t end = test_now_ns() + stage_number("LEASEHOLD_KILL_MS", 10000) * 1000000;
    uint64_t killed = 0, grants = 0;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < MORTALS; i++)
        pids[i] = stage_play(mortal, i);
    while (test_now_ns() < end) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        struct timespec nap = {0, (long)((seed >> 33) % 4000000)};
        nanosleep(&nap, NULL);
        int i = (int)((seed >> 16) % MORTALS);
        stage_kill(pids[i]);
        killed++;
        look_at_the_book(&table, &book, &last);
        pids[i] = stage_play(mortal, i);
    }
    for (int i = 0; i < MORTALS; i++) {
        stage_kill(pids[i]);
        grants += atomic_load(&board->count[i]);
    }
    int64_t began = test_now_ns();
    assert_true(eventually(all_is_back, agent));
    int64_t most = DRAIN_MS + stage_patience(1000); /* where readings tell nothing */
    assert_true(test_now_ns() - began < most * INT64_C(1000000));
    print_message("%llu killed, %llu grants meanwhile, all slots back %.1f s after the last\n",
                  (unsigned long long)killed, (unsigned long long)grants,
                  (double)(test_now_ns() - began) / 1e9);
    look_at_the_book(&table, &book, &last);
    assert_true(grants > 0);
    assert_int_equal(atomic_load(&given->twice), 0);
    assert_int_equal(atomic_load(&given->outside), 0);
    munmap(given, sizeof *given);
    host_table_close(&table);
    close(dir);
    lease_agent_close(&agent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {staged(test_killed_at_any_instant)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
