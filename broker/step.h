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

/* queue.c: what the clock ends, and who may have what is free now. */
void queue_expire(struct step *step);
void queue_advance(struct step *step);
void queue_call(struct step *step, const struct record *record); /* wake its waiter */
void queue_hold(struct step *step, struct record *record);
void queue_dispatch(struct step *step, struct record *record, uint32_t ttl_ms);

/* broker.c */
void step_note(struct step *step, enum note_kind kind, const struct record *record,
               enum reason reason, int32_t value);
void step_end(struct step *step, struct record *record, enum record_end end);
void step_want_reading(struct step *step);
enum reason step_reason(enum obstacle obstacle);

#endif
