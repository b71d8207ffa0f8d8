/* What the parts of a step share: the book, the time, and where effects go. Internal to broker/. */
#ifndef BROKER_STEP_H
#define BROKER_STEP_H

#include "broker/broker.h"

struct step {
    struct broker *broker;
    struct book *book;
    ns_t now;
    struct effects *effects;
};

/* requests.c */
void requests_answer(struct step *step, const struct request *request);
/* acquire.c */
void requests_acquire(struct step *step, const struct request *request);
struct record *acquire_find(struct step *step, const struct request *request);
enum reason acquire_is_impossible(const struct step *step, const struct request *request);
/* The id that a request brings was issued once and has ended, or nobody here would know it. */
bool acquire_is_dead(const struct step *step, const struct request *request);
/* A new record with an id and a place, in the state that the caller gives it next; NULL: full. */
struct record *acquire_write(struct step *step, const struct request *request);
/* verify.c */
void requests_verify(struct step *step, const struct request *request);

/* reply.c */
struct answer *step_reply(struct step *step, enum verdict verdict, enum reason reason);
struct answer *step_reply_of(struct step *step, enum verdict verdict, enum reason reason,
                             const struct record *record);
void step_reply_gone(struct step *step, const struct record *record); /* record may be NULL */
void step_reply_wait(struct step *step, const struct record *record, enum reason reason);
void step_reply_wait_over(struct step *step, const struct record *record);
void step_reply_unread(struct step *step, const struct record *record); /* record may be NULL */
void step_tell_wait(struct step *step, const struct record *record);
void step_explain(struct step *step, struct answer *answer, const struct tally *tally,
                  uint64_t place, int32_t slot);
void step_refuse(struct step *step, const struct request *request, enum reason reason);
/* Whoever asked for something new is told no by the reply that stands there: no record is made. */
void step_refuse_new(struct step *step, const struct request *request);
/* A refusal is kept for who did not hear it, and said again: true where this was such a one. */
void step_remember(struct step *step, const struct request *request);
bool step_answer_again(struct step *step, const struct request *request);
void step_stamp(struct step *step, struct record *record, const struct request *request);
void step_enqueue(struct step *step, struct record *record, const struct request *request,
                  enum reason reason);
/* A reading that was asked for since then is as fresh as can be. 0: no moment was said. */
static inline ns_t step_since(const struct request *request)
{
    return request->fresh_ns != 0 ? request->fresh_ns : request->asked_ns;
}

/* It wants to stand in the queue, and its wait has not ended. */
bool step_may_wait(const struct step *step, const struct request *request);
bool step_ttl_is_valid(uint32_t ttl_ms);
/* What a refusal stands on may have changed since the last reading: a new one is worth asking. */
bool step_reading_may_help(const struct step *step, const struct request *request,
                           const struct tally *tally, int32_t ahead, uint32_t units);
/* The same of the other members of the group. */
bool step_group_may_help(const struct step *step, const struct request *request, uint64_t place);
/* How many slots there are has never been told: whatever is decided now would be a guess. */
bool step_slots_are_unknown(const struct book *book);

/* queue.c: what the clock ends, and who may have what is free now. */
void queue_expire(struct step *step);
void queue_advance(struct step *step);
void queue_call(struct step *step, const struct record *record); /* wake its waiter */
void queue_hold(struct step *step, struct record *record);
void queue_dispatch(struct step *step, struct record *record, uint32_t ttl_ms);

/* broker.c */
void step_note(struct step *step, enum note_kind kind, const struct record *record,
               enum reason reason, int32_t value);
/* A refused acquire, which left no record: for the log, but not more than one a second. */
void step_note_refusal(struct step *step, const struct request *request, enum reason reason);
void step_note_end(struct step *step, const struct record *record); /* by what ended it */
void step_end(struct step *step, struct record *record, enum record_end end);
/* Notes what became of strangers and health, which were so before. */
void step_note_sight(struct step *step, int32_t strangers, int32_t health);
void step_want_reading(struct step *step);
enum reason step_reason(enum obstacle obstacle);

#endif
