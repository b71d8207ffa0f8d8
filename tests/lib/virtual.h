/* A book in virtual time, so that tests of the core read like transcripts.
 *
 *     on_server(2);                                  two slots, work has names, idle
 *     struct lease_id a = granted(acquire());
 *     go(verify(a));
 *     after(5);
 *     shows(1, 71);                                  a reading: one at work, its name is 71
 *     no(verify(b), REASON_STRANGERS);
 *
 * Time, readings and requests are world.h's. One world a test program. */
#ifndef LEASEHOLD_TESTS_VIRTUAL_H
#define LEASEHOLD_TESTS_VIRTUAL_H

#include "tests/lib/check.h"
#include "tests/lib/world.h"

/* ---- verdicts ------------------------------------------------------------------------------- */

static inline struct lease_id verdict_is(struct answer answer, enum verdict verdict, int reason,
                                         const char *file, int line)
{
    _assert_int_equal(answer.verdict, verdict, file, line);
    if (reason >= 0)
        _assert_int_equal(answer.reason, (unsigned)reason, file, line);
    return answer.lease;
}

#define granted(answer)      verdict_is(answer, ANSWER_GRANTED, -1, __FILE__, __LINE__)
#define go(answer)           verdict_is(answer, ANSWER_GO, -1, __FILE__, __LINE__)
#define go_since(answer, r)  verdict_is(answer, ANSWER_GO, r, __FILE__, __LINE__)
#define no(answer, reason)   verdict_is(answer, ANSWER_NO, reason, __FILE__, __LINE__)
#define waits(answer)        verdict_is(answer, ANSWER_WAIT, -1, __FILE__, __LINE__)
#define unread(answer)       verdict_is(answer, ANSWER_UNREAD, -1, __FILE__, __LINE__)
#define gone(answer, reason) verdict_is(answer, ANSWER_GONE, reason, __FILE__, __LINE__)

/* ---- looking -------------------------------------------------------------------------------- */

static inline enum record_state state_of(struct lease_id lease)
{
    const struct record *record = record_of(lease);
    return record ? (enum record_state)record->state : RECORD_FREE;
}

static inline enum record_end end_of(struct lease_id lease)
{
    return (enum record_end)record_of(lease)->end;
}

#define is_state(lease, state) assert_int_equal(state_of(lease), RECORD_##state)
#define is_end(lease, end)     assert_int_equal(end_of(lease), END_##end)

/* Asked again, it was told the same. */
static inline void same_answer(struct answer a, struct answer b)
{
    assert_int_equal(a.verdict, b.verdict);
    assert_int_equal(a.reason, b.reason);
    assert_int_equal(a.undecided, b.undecided);
    assert_true(lease_id_equal(a.lease, b.lease));
    assert_int_equal(a.token, b.token);
    assert_int_equal(a.place, b.place);
    assert_int_equal(a.end_ns, b.end_ns);
    assert_int_equal(a.waited_ms, b.waited_ms);
    assert_int_equal(a.end, b.end);
}

/* A lease that was acquired and told to go just now. */
static inline struct lease_id dispatched(const char *label)
{
    struct lease_id lease = granted(acquire(.label = label));
    struct answer answer = verify(lease);
    assert_int_equal(answer.verdict, ANSWER_GO);
    return lease;
}

static inline void idle_for(struct lease_id lease, int seconds)
{
    for (int s = 0; s < seconds; s += 2) {
        after(2000);
        if (s % 10 == 0)
            renew(lease);
        shows_nothing();
    }
}

#endif
