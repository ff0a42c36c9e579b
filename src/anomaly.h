/*-------------------------------------------------------------------------
 * anomaly.h
 *	  Anomalies: facts that fit nothing, waiting for a human.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_ANOMALY_H
#define IDEM_ANOMALY_H

#include "look.h"

/* What is noted of an anomaly's cause: a jsonb object, put together field by field */
typedef struct AnomalyDetail AnomalyDetail;

extern AnomalyDetail *anomaly_detail(IdemCall *call);
extern void anomaly_detail_text(AnomalyDetail *detail, const char *name, NullableDatum value);
extern void anomaly_detail_amount(AnomalyDetail *detail, const char *name, NullableDatum value);
extern NullableDatum anomaly_detail_done(AnomalyDetail *detail);

/*
 * Open an anomaly, or count a hit on the open one of this kind and thing.
 * detail is jsonb, or NULL.
 */
extern void anomaly_open(IdemCall *call, const char *kind, const char *entity,
						 Datum key, NullableDatum order_id, NullableDatum detail);

/* Resolve the open anomaly of this kind and thing, if there is one */
extern void anomaly_resolve(IdemCall *call, const char *kind, const char *entity,
							Datum key, const char *resolution, NullableDatum reason);

/* Is one open?  The dirty look meets whoever is at work on it. */
extern bool anomaly_look(IdemCall *call, const char *kind, const char *entity,
						 Datum key, IdemSight sight);

/*
 * Lock the open one, if any, so that a request which is to resolve it does not
 * wait once it has begun to write.  false: it was busy.
 */
extern bool anomaly_lock(IdemCall *call, const char *kind, const char *entity, Datum key);

/* The same without waiting, for who holds names; false: somebody is at it, who may be in call->rival */
extern bool anomaly_try_lock(IdemCall *call, const char *kind, const char *entity, Datum key);

#endif							/* IDEM_ANOMALY_H */
