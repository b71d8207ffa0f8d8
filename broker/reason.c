/* Answers and notes in words. */
#include <stdio.h>
#include <string.h>

#include "broker/broker.h"

static void who(const struct answer *answer, char *text, size_t size)
{
    text[0] = '\0';
    if (answer->other.state == RECORD_FREE)
        return;
    const char *verb = answer->other.state == RECORD_HELD     ? "held by"
                       : answer->other.state == RECORD_ORPHAN ? "left running by"
                                                              : "taken by";
    if (answer->other.state == RECORD_ORPHAN)
        snprintf(text, size, ", %s %s on %s (pid %u)", verb, answer->other.label,
                 answer->other.host, answer->other.pid);
    else
        snprintf(text, size, ", %s %s on %s (pid %u) for another %.1f s at most", verb,
                 answer->other.label, answer->other.host, answer->other.pid,
                 (double)answer->other.left_ms / 1000.0);
}

static const char *ended(enum record_end end)
{
    switch (end) {
    case END_RELEASED: return "the lease was released";
    case END_EXPIRED: return "the lease expired";
    case END_LAPSED: return "the lease lapsed when its holder died";
    case END_REFUSED: return "the lease ended when verify said no";
    case END_GAVE_UP: return "the lease ended with its wait";
    case END_FORCED: return "the lease was released by force";
    case END_REPLACED: return "a newer lease replaced it";
    case END_NONE: break;
    }
    return "the lease has ended";
}

static const char *health_text(enum health health)
{
    switch (health) {
    case HEALTH_BUSY: return "the server is busy: it does not answer in time, or has a queue";
    case HEALTH_LOADING: return "the server is loading its model";
    case HEALTH_UNAUTHORIZED: return "the server refuses our key: check key-file";
    case HEALTH_DOWN: return "the server is down";
    default: return "the server's answer cannot be understood";
    }
}

void broker_reason_text(const struct answer *answer, char *text, size_t size)
{
    char other[NAME_SIZE + LABEL_SIZE + 80];
    who(answer, other, sizeof other);
    int slots = answer->slots;
    switch (answer->reason) {
    case REASON_NONE: snprintf(text, size, "%s", answer->verdict == ANSWER_GO ? "go" : ""); break;
    case REASON_WAKES: snprintf(text, size, "the server sleeps, the first request wakes it"); break;
    case REASON_LOADS:
        snprintf(text, size, "the model is not loaded, the first request loads it");
        break;
    case REASON_LEASES:
        snprintf(text, size, "%d of %d slot%s leased%s", answer->busy - answer->strangers, slots,
                 slots == 1 ? "" : "s", other);
        break;
    case REASON_AHEAD:
        snprintf(text, size, "%d unit%s ahead in %d slot%s%s", answer->ahead,
                 answer->ahead == 1 ? "" : "s", slots, slots == 1 ? "" : "s", other);
        break;
    case REASON_STRANGERS:
        snprintf(text, size, "%d stranger%s at work in %d slot%s, without a lease",
                 answer->strangers, answer->strangers == 1 ? "" : "s", slots,
                 slots == 1 ? "" : "s");
        break;
    case REASON_QUEUE: snprintf(text, size, "the server's own queue is not empty"); break;
    case REASON_SLOT: snprintf(text, size, "the slot it names is taken%s", other); break;
    case REASON_HEALTH: snprintf(text, size, "%s", health_text(answer->health)); break;
    case REASON_UNITS: snprintf(text, size, "asks for more units than there are slots"); break;
    case REASON_SLOT_RANGE: snprintf(text, size, "there is no slot with this index"); break;
    case REASON_TTL: snprintf(text, size, "a time to live is 1 s to 24 h"); break;
    case REASON_BOOK_FULL: snprintf(text, size, "the book is full, try again later"); break;
    case REASON_QUEUE_FULL:
        snprintf(text, size, "%d wait already, the queue is full", BOOK_WAITERS_MAX);
        break;
    case REASON_PAUSE:
        snprintf(text, size, "the server is left alone for a moment, to notice who has gone");
        break;
    case REASON_GHOST:
        snprintf(text, size, "no work shows for this lease, it is not renewed");
        break;
    case REASON_ENDED: snprintf(text, size, "%s", ended(answer->end)); break;
    case REASON_UNKNOWN_ID: snprintf(text, size, "no such lease, or it ended long ago"); break;
    case REASON_GROUP:
        if (answer->group[0])
            snprintf(text, size, "%s of group %s is in use, or was first", answer->member,
                     answer->group);
        else
            snprintf(text, size, "%s of the same group is in use, or was first", answer->member);
        break;
    case REASON_NOT_YOURS:
        snprintf(text, size, "its holder lives and is another process: use --force");
        break;
    case REASON_WAIT_OVER:
        snprintf(text, size, "no slot within the wait of %.1f s", answer->waited_ms / 1000.0);
        break;
    }
}

const char *note_name(enum note_kind kind)
{
    static const char *const names[NOTE_KINDS] = {
        [NOTE_ACQUIRED] = "acquired",
        [NOTE_QUEUED] = "queued",
        [NOTE_WENT] = "go",
        [NOTE_REFUSED] = "refused",
        [NOTE_RELEASED] = "released",
        [NOTE_FORCED] = "forced",
        [NOTE_EXPIRED] = "expired",
        [NOTE_LAPSED] = "lapsed",
        [NOTE_GAVE_UP] = "gave up",
        [NOTE_REPLACED] = "replaced",
        [NOTE_STRANGERS] = "strangers",
        [NOTE_STRANGERS_GONE] = "strangers gone",
        [NOTE_GHOST] = "ghost",
        [NOTE_ORPHAN] = "orphan",
        [NOTE_HEALTH] = "health",
        [NOTE_ORPHAN_GONE] = "orphan gone",
        [NOTE_RENEWAL_REFUSED] = "renewal refused",
    };
    return (unsigned)kind < NOTE_KINDS ? names[kind] : "unknown";
}

const char *reason_name(enum reason reason)
{
    static const char *const names[] = {
        [REASON_NONE] = "",
        [REASON_WAKES] = "wakes the server",
        [REASON_LOADS] = "loads the model",
        [REASON_LEASES] = "leases",
        [REASON_AHEAD] = "ahead",
        [REASON_STRANGERS] = "strangers",
        [REASON_QUEUE] = "server's queue",
        [REASON_SLOT] = "slot taken",
        [REASON_HEALTH] = "health",
        [REASON_UNITS] = "units",
        [REASON_SLOT_RANGE] = "slot range",
        [REASON_TTL] = "time to live",
        [REASON_BOOK_FULL] = "book full",
        [REASON_QUEUE_FULL] = "queue full",
        [REASON_PAUSE] = "pause",
        [REASON_GHOST] = "ghost",
        [REASON_ENDED] = "ended",
        [REASON_UNKNOWN_ID] = "unknown id",
        [REASON_WAIT_OVER] = "wait over",
        [REASON_GROUP] = "group",
        [REASON_NOT_YOURS] = "not yours",
    };
    return (unsigned)reason < sizeof names / sizeof names[0] ? names[reason] : "unknown";
}
