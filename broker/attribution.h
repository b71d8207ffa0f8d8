/* What a reading means for a book: whose work arrived, whose is missing, who are strangers.
 *
 * Where the engine names its tasks, names that are new since the last reading are arrivals, and
 * each makes the oldest unseen unit (of leases dispatched before the probe was sent) seen. Where it
 * only counts, in-flight work belongs first to strangers already known, then to seen leases, and
 * what is left makes unseen ones seen. */
#ifndef BROKER_ATTRIBUTION_H
#define BROKER_ATTRIBUTION_H

#include "broker/book.h"

/* Takes a reading in. An older one than the last is ignored (false). The reading is sanitized by
 * the caller (reading_sanitize); everything that changes is marked dirty. */
bool attribution_take(struct book *book, const struct reading *reading, ns_t now);

/* The same of a reading that the owner of the book made and told, with how many strangers it makes
 * of it and since when; slots[] of it are not looked at. */
void attribution_take_told(struct book *book, const struct reading *reading, int32_t strangers,
                           ns_t strangers_since_ns);

/* When the server may be asked next at the earliest, and when it should be in the background
 * (watched: somebody looks). */
ns_t attribution_not_before(const struct book *book);
ns_t attribution_next_due(const struct book *book, bool watched);

/* Something is leased or at work, or somebody looks. */
bool attribution_is_active(const struct book *book, bool watched);

#endif
