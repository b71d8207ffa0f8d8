/* The owner's book as a model: three holders, two slots, acquire, verify, release, expiry, death, and
 * a network that loses, delays and doubles what is sent. Checked exhaustively by check.sh: run
 * `tests/model/check.sh` from the project's root.
 *
 * The states of a record are those of broker/record.h, and what is decided is what broker/ decides:
 * admission's arithmetic with named tasks (broker/README.md), places, floors, expiry.
 *
 * Time is not counted: whatever a clock may end, may end at any moment. Two things that clocks do
 * promise are taken for given, both stated in the design:
 *   - a holder's end comes before the owner's end: who is told go acts on it only while the owner
 *     still counts the lease (`lease_stands`);
 *   - a request that was sent arrives before its lease has settled (SETTLE_NAMES_MS): an unseen
 *     orphan is given up only when nothing of it is under way.
 *
 * SAFETY   no more requests are under way or at work than there are slots; no grant for an id that
 *          was dead; the arithmetic never counts below what is at work.
 * NO WEDGE whatever a holder does, or does not do any more, its record ends (with weak fairness).
 *
 * -D BUG_READ     verify only looks, and forgets to make the transition: must fail
 * -D BUG_REVIVE   a verify that comes late revives what has ended: must fail
 * -D BUG_ORPHAN   an expired lease leaves no orphan: must fail
 * -D BUG_FORGET   a dead holder's lease is never ended: must fail (no wedge) */

#define HOLDERS 3
#define SLOTS 2
/* Leases that a holder takes, one after the other. */
#ifndef LEASES
#define LEASES 1
#endif
#define LAST_LEASE(h) (h == 0 -> LEASES : 1)

mtype:state = { FREE, HELD, DISPATCHED, ORPHAN, GONE };
mtype:word = { VERIFY, RELEASE };
mtype:verdict = { GO, NO };

/* The owner's book: the last record of each holder. */
mtype:state state[HOLDERS] = FREE;
byte lease[HOLDERS];   /* which of the holder's leases the record is of */
byte floor[HOLDERS];   /* the highest of its leases that is dead (floors.h) */
byte place[HOLDERS];   /* order of arrival among the held, 0 none */
bool arrived[HOLDERS]; /* a reading has shown its work */

/* The server, and the way there. */
bool under_way[HOLDERS];
bool at_work[HOLDERS];

bool alive[HOLDERS] = true;

/* Of each holder one letter and one answer may be on its way; both may be lost, and a letter may come
 * again as often as it likes until the next one is written. */
mtype:word letter[HOLDERS] = VERIFY;
byte letter_lease[HOLDERS]; /* 0: no letter */
mtype:verdict answer[HOLDERS] = NO;
byte answer_lease[HOLDERS]; /* 0: no answer */

#define LIVE(h) (state[h] == HELD || state[h] == DISPATCHED || state[h] == ORPHAN)
#ifndef BUG_READ
#define lease_stands(h, l) (state[h] == DISPATCHED && lease[h] == l)
#else
#define lease_stands(h, l) (LIVE(h) && lease[h] == l)
#endif
#define REQUESTS \
    (under_way[0] + under_way[1] + under_way[2] + at_work[0] + at_work[1] + at_work[2])

/* ---- the owner ------------------------------------------------------------------------------- */

/* The clock of no place is needed: only their order. */
inline leave_place(h)
{
    byte i;
    for (i : 0 .. HOLDERS - 1) {
        if
        :: place[h] != 0 && place[i] > place[h] -> place[i]--
        :: else
        fi
    }
    place[h] = 0;
    i = 0
}

inline take_place(h)
{
    byte k;
    place[h] = 1;
    for (k : 0 .. HOLDERS - 1) {
        if
        :: k != h && place[k] >= place[h] -> place[h] = place[k] + 1
        :: else
        fi
    }
    k = 0
}

/* As GONE: the id is dead for ever. */
inline end_record(h)
{
    leave_place(h);
    floor[h] = lease[h];
    lease[h] = 0;
    arrived[h] = false;
    state[h] = GONE
}

/* Work of a dispatched lease goes on when it expires or its holder dies. */
inline expire(h)
{
    if
#ifndef BUG_ORPHAN
    :: state[h] == DISPATCHED -> state[h] = ORPHAN
#endif
    :: else -> end_record(h)
    fi
}

/* A reading with named tasks: what is at work makes its own lease seen, and an orphan that was seen
 * and is at work no more has ended. */
inline take_reading()
{
    byte r;
    for (r : 0 .. HOLDERS - 1) {
        if
        :: at_work[r] && (state[r] == DISPATCHED || state[r] == ORPHAN) -> arrived[r] = true
        :: !at_work[r] && state[r] == ORPHAN && arrived[r] -> end_record(r)
        :: else
        fi
    }
    r = 0
}

/* busy = max(D + orphans, I + unseen); ahead = held with a smaller place. */
inline tally(h, busy, ahead)
{
    byte t;
    byte dispatched = 0;
    byte in_flight = 0;
    byte unseen = 0;
    ahead = 0;
    for (t : 0 .. HOLDERS - 1) {
        dispatched = dispatched + (state[t] == DISPATCHED || state[t] == ORPHAN);
        in_flight = in_flight + at_work[t];
        unseen = unseen + ((state[t] == DISPATCHED || state[t] == ORPHAN) && !arrived[t]);
        ahead = ahead + (t != h && state[t] == HELD && place[t] < place[h])
    }
    busy = (dispatched > in_flight + unseen -> dispatched : in_flight + unseen);
    assert(busy >= in_flight);
    t = 0; dispatched = 0; in_flight = 0; unseen = 0
}

inline reply(h, word)
{
    answer[h] = word;
    answer_lease[h] = letter_lease[h]
}

inline verify_held(h)
{
    take_reading();
    tally(h, busy, ahead);
    if
    :: busy + ahead + 1 <= SLOTS ->
        assert(lease[h] > floor[h]); /* what ended has ended */
#ifndef BUG_READ
        state[h] = DISPATCHED;
        leave_place(h);
#endif
        arrived[h] = false;
        reply(h, GO)
    :: else ->
        reply(h, NO);
        end_record(h)
    fi;
    busy = 0; ahead = 0
}

/* The record of an earlier lease of the same holder makes room: in the code it would be another
 * cell, and only one that has ended is used again. */
inline record_claim(h)
{
    lease[h] = letter_lease[h];
    take_place(h);
    arrived[h] = false;
    state[h] = HELD
}

inline answer_verify(h)
{
    if
#ifndef BUG_REVIVE
    :: letter_lease[h] <= floor[h] -> reply(h, NO) /* it is dead */
#endif
    :: else ->
        if
        :: LIVE(h) && lease[h] == letter_lease[h] && state[h] == DISPATCHED -> reply(h, GO) /* again */
        :: LIVE(h) && lease[h] == letter_lease[h] && state[h] == HELD -> verify_held(h)
        :: LIVE(h) && lease[h] == letter_lease[h] && state[h] == ORPHAN -> reply(h, NO)
        :: LIVE(h) && lease[h] != letter_lease[h] -> reply(h, NO) /* its orphan lives: no room here */
        :: !LIVE(h) ->
            record_claim(h);
            verify_held(h)
        fi
    fi
}

inline answer_release(h)
{
    if
    :: (state[h] == HELD || state[h] == DISPATCHED) && lease[h] == letter_lease[h] -> end_record(h)
    :: else ->
        if
        :: floor[h] < letter_lease[h] && !LIVE(h) -> floor[h] = letter_lease[h] /* never heard of */
        :: else
        fi
    fi
}

active proctype owner()
{
    byte busy, ahead, h;
    end: do
    :: atomic { /* a letter arrives, now or again */
        select (h : 0 .. HOLDERS - 1);
        if
        :: letter_lease[h] != 0 && letter[h] == VERIFY -> answer_verify(h)
        :: letter_lease[h] != 0 && letter[h] == RELEASE -> answer_release(h); letter_lease[h] = 0; letter[h] = VERIFY
        :: else
        fi;
        h = 0
       }
    :: atomic { /* a claim of somebody is heard: an intention, whatever the slots say */
        select (h : 0 .. HOLDERS - 1);
        if
        :: letter_lease[h] != 0 && letter[h] == VERIFY && letter_lease[h] > floor[h] && !LIVE(h) ->
            record_claim(h)
        :: else
        fi;
        h = 0
       }
    :: atomic { take_reading() }
    od
}

/* Time ends a lease, or a dead holder's agent tells; and an orphan whose work never showed has settled:
 * nothing of it is under way any more. A process of its own for each record, so that fairness holds for
 * each: this is what no wedge rests on. */
active [HOLDERS] proctype clock()
{
    byte h = _pid - 1;
    end: do
    :: atomic { state[h] == ORPHAN && !under_way[h] && !at_work[h] -> end_record(h) }
    :: atomic {
#ifdef BUG_FORGET
        (state[h] == HELD || state[h] == DISPATCHED) && alive[h]
#else
        (state[h] == HELD || state[h] == DISPATCHED)
#endif
        -> expire(h)
       }
    od
}

/* ---- the server ------------------------------------------------------------------------------ */

active [HOLDERS] proctype server()
{
    byte h = _pid - 1 - HOLDERS;
    end: do
    :: atomic { under_way[h] -> under_way[h] = false; at_work[h] = true }
    :: atomic { at_work[h] -> at_work[h] = false }
    od
}

/* ---- the holders ----------------------------------------------------------------------------- */

inline dispatch(h)
{
    under_way[h] = true;
    assert(REQUESTS <= SLOTS) /* nobody queues at the server */
}

active [HOLDERS] proctype holder()
{
    byte h = _pid - 1 - 2 * HOLDERS;
    byte mine = 0;
    end: do
    :: atomic { /* takes its next lease and asks; what was on its way of the last one is lost */
        mine < LAST_LEASE(h) && !under_way[h] && !at_work[h] ->
        mine++;
        letter[h] = VERIFY; letter_lease[h] = mine; answer_lease[h] = 0; answer[h] = NO
       };
       if
       :: atomic { /* go, and its own clock still lets it */
           answer_lease[h] == mine && answer[h] == GO && lease_stands(h, mine) -> dispatch(h);
           answer_lease[h] = 0; answer[h] = NO
          };
          if
          :: !under_way[h] && !at_work[h] -> skip /* done */
          :: atomic { alive[h] = false }; goto dead
          :: skip -> skip /* forgets to give it back, or is cut off */
          fi
       :: atomic { answer_lease[h] == mine && answer[h] == NO -> answer_lease[h] = 0 }
       :: skip /* gave up waiting: the answer may be lost, or late */
       :: atomic { alive[h] = false }; goto dead
       fi;
       if
       :: atomic { !under_way[h] && !at_work[h] -> letter[h] = RELEASE; letter_lease[h] = mine; answer_lease[h] = 0; answer[h] = NO }
       :: skip /* the release is lost */
       fi
    od;
dead:
    skip
}

/* ---- what must be true ----------------------------------------------------------------------- */


ltl no_wedge { [] (LIVE(0) -> <> !LIVE(0)) }
