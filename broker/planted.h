/* Bugs on purpose: at the places where they matter most the core can be built wrong, so that the
 * simulator (tests/sim) is shown to notice. In everything that is shipped PLANTED() is 0, and nothing of
 * it is compiled. */
#ifndef BROKER_PLANTED_H
#define BROKER_PLANTED_H

/* X(name, what is wrong) */
#define PLANTS(X)                                                                                  \
    X(PLANT_NONE, "nothing")                                                                       \
    X(PLANT_VERIFY_AS_A_READ, "a go changes nothing in the book")                                  \
    X(PLANT_RENEWAL_REVIVES, "a renewal revives what has ended")                                   \
    X(PLANT_COUNTS_FROM_RECEIPT, "a holder counts its time from the reply")                        \
    X(PLANT_NO_FLOORS, "forgotten ids of other books are not remembered")                          \
    X(PLANT_TOKEN_AGAIN, "tokens begin anew when a process does")                                  \
    X(PLANT_LOWEST_INDEX, "of equals the first is chosen")                                         \
    X(PLANT_UNKNOWN_IS_FREE, "a server that does not answer is taken to be idle")                  \
    X(PLANT_LOCK_NOT_COVERING_READ, "the book is read before it is locked")                        \
    X(PLANT_EXPIRY_WHEN_IDLE, "what ran out ends only when nothing else is to do")                 \
    X(PLANT_EPOCH_NOT_RAISED, "an owner that wakes keeps its epoch")                               \
    X(PLANT_WITHDRAWAL_FORGOTTEN, "a withdrawal that comes before its claim is forgotten")         \
    X(PLANT_STATE_EXTENDS, "a state extends the leases of the host that hears it")                 \
    X(PLANT_OLD_STATE_TAKEN, "an older state replaces a newer one")                                \
    X(PLANT_NO_DUPLICATES, "a request that is asked again is decided again")                       \
    X(PLANT_QUEUE_BACKWARDS, "who came last is served first")                                      \
    X(PLANT_MISSING_STAYS, "a lease that the owner does not name any more stays in copies")        \
    X(PLANT_ORPHANS_ARE_FREE, "work whose holder died is not counted")                             \
    X(PLANT_CLAIM_EXTENDS, "a claim extends what the owner has granted")

enum plant {
#define PLANT_NAME(name, what) name,
    PLANTS(PLANT_NAME)
#undef PLANT_NAME
        PLANT_COUNT
};

#ifdef LEASEHOLD_PLANTED
extern enum plant leasehold_planted;
#define PLANTED(plant) (leasehold_planted == (plant))
#else
#define PLANTED(plant) 0
#endif

#endif
