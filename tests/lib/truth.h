/* A server that knows the truth, and a book that must guess it: a seeded simulation in virtual
 * time, event by event.
 *
 * A placement acquires, verifies, and sends its request when told to go. False go: the request
 * found every slot at work when it arrived. False no: it was refused while a slot was neither at
 * work, nor promised to a lease, nor wanted by somebody with a smaller place.
 *
 * What the readings could not have told is reckoned beside it, by an observer who knows the server as
 * it was at the last reading and the leases as they are now, but no stranger who came since. Strangers
 * come at a rate of L a second, and a request arrives W seconds after the moment that the reading
 * shows. With r slots left over by that reading when the request has its own, it queues only if more
 * than r strangers come in W:
 *
 *     P = 1 - sum over i = 0..r of exp(-LW) (LW)^i / i!
 *
 * The sum of P over all goes is how many false ones the window explains; a little more, since it
 * lets nobody leave in W. Nothing explains a go where r < 0. */
#ifndef LEASEHOLD_TESTS_TRUTH_H
#define LEASEHOLD_TESTS_TRUTH_H

#include <stdbool.h>
#include <stdint.h>

enum truth_signal { TRUTH_NAMES, TRUTH_COUNTS, TRUTH_INFERRED, TRUTH_NONE };

struct truth_run {
    enum truth_signal signal;
    int32_t slots;
    double leases, strangers; /* requests a second and slot */
    uint32_t burst;           /* placements that come at once: 1 to twice as many */
    uint32_t max_age_ms, settle_ms;
    uint32_t arrival_ms; /* from go to arrival */
    uint32_t read_ms;    /* a reading takes up to this, and shows some moment of it */
    uint32_t lag_ms;     /* what it shows is as old */
    uint32_t hidden_ms;  /* a request of ours is shown up to this after it began */
    double blind;        /* a second: how often the gauges stand still, */
    uint32_t blind_ms;   /* for up to this */
    double early;        /* share of requests that are over within 30 ms */
    double idle;         /* share of leases that send nothing, for up to 5 s */
    double dies;         /* share of clients that die, within 1.5 s; the server works on */
    bool hides_queue;    /* it does not tell how many wait in it */
    bool pauses;         /* the server is left alone when the book says so; else never */
    double seconds;
};

struct truth_score {
    uint64_t gos, nos, undecided;
    uint64_t found; /* verdicts given while a slot was free for it */
    uint64_t false_go, false_no;
    double explained, variance; /* of false goes, by the window; no signal explains any: -1 */
};

/* Uses the world of the file that defines it: one at a time. */
void truth_simulate(const struct truth_run *run, uint64_t seed, struct truth_score *score);

#endif
