/*-------------------------------------------------------------------------
 * receipt.h
 *	  Receipts: money that really arrived.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_RECEIPT_H
#define IDEM_RECEIPT_H

#include "order.h"
#include "payment.h"

/* In the order of receipt_disposition_names */
typedef enum ReceiptDisposition
{
	RECEIPT_APPLIED,
	RECEIPT_LATE,
	RECEIPT_SURPLUS,
	RECEIPT_MISMATCH,
	RECEIPT_ORPHAN,
	RECEIPT_REJECTED
} ReceiptDisposition;

extern const char *const receipt_disposition_names[];

/* A row of idem_receipt */
typedef struct Receipt
{
	ItemPointerData tid;		/* invalid: not yet written */
	Datum		receipt_no;
	NullableDatum payment_no;
	NullableDatum order_id;
	int32		purchase_no;	/* 0: NULL */
	Datum		channel;
	Datum		account;
	Datum		trade_no;
	Datum		reported_payment_no;
	NullableDatum amount;		/* int8, minor units, as the channel said */
	NullableDatum currency;		/* as the channel said */
	ReceiptDisposition disposition;
	int64		refund_reserved;
	int64		refunded;
	int64		disputed;
	int64		excess;
	NullableDatum paid_at;
	TimestampTz created_at;
	int64		refund_told;	/* the sum of all refunds, as the channel told it last */
	NullableDatum refund_told_at;	/* the channel's time of that */
} Receipt;

extern const IdemIndex receipt_by_no;		/* tenant_id, receipt_no */
extern const IdemIndex receipt_by_trade;	/* tenant_id, channel, account, trade_no */
extern const IdemIndex receipt_by_payment;	/* tenant_id, payment_no, channel, trade_no */
extern const IdemIndex receipt_applied;		/* tenant_id, order_id, purchase_no */
extern const IdemIndex receipt_orphans;		/* tenant_id, reported_payment_no */

extern Receipt *receipt_of_row(const IdemRow *row);
extern Receipt *receipt_look(IdemCall *call, Datum receipt_no, IdemSight sight);
extern Receipt *receipt_look_settled(IdemCall *call, const IdemIndex *index, const Datum *keys, int nkeys);
extern Receipt *receipt_look_own(IdemCall *call, Datum payment_no, Datum channel, Datum trade_no, IdemSight sight);
extern Receipt *receipt_look_applied(IdemCall *call, Datum order_id, int32 purchase_no, IdemSight sight);
extern Receipt *receipt_lock_applied(IdemCall *call, Datum order_id, int32 purchase_no);
extern Receipt *receipt_look_trade(IdemCall *call, NullableDatum channel, NullableDatum account,
								   NullableDatum trade_no, IdemSight sight);
extern Receipt *receipt_lock(IdemCall *call, Datum receipt_no);
pg_noreturn extern void receipt_not_found(Datum receipt_no);

extern bool receipt_is_empty(Datum value);

/* Is it this payment's?  The number it was reported for counts while it has no payment. */
extern bool receipt_is_for(const Receipt *receipt, Datum payment_no);

/* The purchase's receipts that wait for a decision, locked ascending; NIL, or call->busy */
extern List *receipt_lock_mismatches(IdemCall *call, Datum order_id, int32 purchase_no);

/* The first of a payment's receipts in disposition mismatch; NULL: none */
extern Receipt *receipt_look_mismatch(IdemCall *call, Datum payment_no);

/*
 * Does money wait for a payment of this number?  The dirty look meets whoever
 * is at work on such a receipt, in call->rival.
 */
extern void receipt_sort(List *rows);	/* of IdemRow, in the order of arrival */
extern bool receipt_look_orphans(IdemCall *call, Datum payment_no, IdemSight sight);

/* That money, locked, the earliest first; what stays busy is left out */
extern List *receipt_lock_orphans(IdemCall *call, Datum payment_no);

/* Note the sum of its refunds that the channel told of a locked receipt */
extern void receipt_note_told(IdemCall *call, Receipt *receipt, int64 sum, NullableDatum at);

/* Could this be money: an amount, a currency, a channel and a trade_no? */
extern bool receipt_makes_sense(const Receipt *receipt);

/* Has all of it gone back? */
extern bool receipt_is_refunded(const Receipt *receipt);

/* Is part of it going back, or disputed?  Then it pays nothing any more. */
extern bool receipt_is_spoken_for(const Receipt *receipt);

/*
 * Lock a receipt that was seen while names are locked.  NULL: somebody held
 * it; the names are unlocked now, he is gone (else call->busy), begin again.
 */
extern Receipt *receipt_take(IdemCall *call, const Receipt *seen);

/*
 * The same for a receipt without a payment: lock the names that such a one is
 * written under, then, once nobody else is at work on it, the receipt.  NULL:
 * the names are unlocked, begin again, or call->busy.
 */
extern void receipt_lock_apart(IdemCall *call, const Receipt *seen);
extern Receipt *receipt_take_apart(IdemCall *call, const Receipt *seen);

/* Lock a receipt as it was seen, with a payment or without; NULL: begin again */
extern Receipt *receipt_lock_seen(IdemCall *call, const Receipt *seen);

/*
 * Insert, or write back payment_no, order_id, purchase_no and disposition of a
 * locked one.  false: somebody
 * inserted the trade past its name; look again.
 */
extern bool receipt_write(IdemCall *call, Receipt *receipt);

/* Reserve that much of a locked receipt for a refund; the table checks that it is there */
extern void receipt_reserve(IdemCall *call, Receipt *receipt, int64 amount);

/*
 * Book what happened to the money of a locked receipt, whether it is there or
 * not: what exceeds the receipt becomes its excess.  receipt_can_book: do the
 * sums stay within what a bigint holds?
 */
extern bool receipt_can_book(const Receipt *receipt, int64 reserved, int64 disputed);
extern void receipt_book(IdemCall *call, Receipt *receipt, int64 reserved, int64 refunded, int64 disputed);

/* The receipt as jsonb, for an anomaly; payment_no: the payment in question */
extern NullableDatum receipt_detail(IdemCall *call, const Receipt *receipt, Datum payment_no);

/* The receipt's anomaly of this kind */
extern void receipt_open_anomaly(IdemCall *call, const char *kind, const Receipt *receipt);
extern void receipt_resolve_anomaly(IdemCall *call, const char *kind, const Receipt *receipt,
									const char *resolution, NullableDatum reason);

/* Its refunds and disputes exceed it; detail: of the fact that made them */
extern void receipt_open_over_refund(IdemCall *call, const Receipt *receipt, NullableDatum detail);

/* Lock the name of a channel's trade */
extern void receipt_lock_trade(IdemCall *call, Datum channel, Datum trade_no);

/*
 * Rule 1 of idem_confirm_payment: money on this account cannot be for this
 * payment (NULL: unknown).  given: the account was named, not inferred.
 */
extern bool receipt_account_refused(IdemCall *call, const Payment *payment, bool given,
									Datum channel, Datum account);


/* ---------- confirm.c ---------- */

/* What a channel tells of money, as it came */
typedef struct ReceiptFact
{
	Datum		payment_no;
	Datum		channel;
	Datum		trade_no;
	NullableDatum amount;
	NullableDatum currency;
	NullableDatum account;		/* NULL: the payment's own at this channel */
	NullableDatum paid_at;
} ReceiptFact;

/* What is answered: the row of idem_confirm_payment */
typedef struct ReceiptAnswer
{
	const char *outcome;
	const char *status;			/* the payment's; NULL: unknown */
	NullableDatum receipt_no;
	NullableDatum refund_no;
	const char *order_status;	/* NULL: no row */
	NullableDatum version;
	NullableDatum closing_payment_no;
} ReceiptAnswer;

/* Money arrived: record it by the rules of idem_confirm_payment */
extern void receipt_confirm(IdemCall *call, const ReceiptFact *fact, ReceiptAnswer *answer);

/*
 * What a notification has to say of money that was recorded, as far as it may
 * still be acted on; without any lock: status, receipt_no and refund_no.
 */
extern void receipt_recall(IdemCall *call, const ReceiptFact *fact, ReceiptAnswer *answer);


/* ---------- receipt_judge.c ---------- */

/* All that decides about money for one payment, locked in the common order */
typedef struct Scene
{
	Payment    *payment;		/* one of payments; NULL: unknown */
	List	   *payments;		/* of the order, ascending by number */
	Order	   *order;			/* NULL: it has no row */
	List	   *mismatches;		/* receipts in disposition mismatch of the purchase */
	Receipt    *applied;		/* of the purchase; known once the scene stands */
	NullableDatum reason;		/* of a human's decision */
} Scene;

struct Refund;

/* What came of a receipt */
typedef struct Settlement
{
	const char *outcome;
	struct Refund *refund;		/* that it started; NULL: none */
	NullableDatum closing_payment_no;
} Settlement;

/* Lock the scene; false: a request gave up (call->busy) */
extern bool scene_lock(IdemCall *call, Datum payment_no, Scene *scene);

/*
 * With the order's name locked (the payment's, if it is unknown): is the scene
 * still all there is?  If not, scene_step_back and begin again.
 */
extern bool scene_stands(IdemCall *call, Datum payment_no, Scene *scene);

/* May the purchase still be paid? */
extern bool scene_takes_money(const Scene *scene);

/* Unlock the names, wait for the rival; false: a request gave up (call->busy) */
extern bool scene_step_back(IdemCall *call);

/*
 * Judge a receipt by rules 4 to 7 and do all that follows.  unlike: another
 * report of it named another amount or currency.  Names are unlocked as soon
 * as the receipt is written.  false: nothing was written, look again.
 */
extern bool scene_settle(IdemCall *call, Scene *scene, Receipt *receipt, bool unlike,
						 Settlement *settlement);

/* The same for a receipt that a human decided to accept */
extern bool scene_accept(IdemCall *call, Scene *scene, Receipt *receipt, Settlement *settlement);

/* Write back the payment in this status, on a fact edge if need be */
extern void scene_advance(IdemCall *call, Payment *payment, PaymentStatus to);

/* What is answered of a scene; receipt and settlement may be NULL */
extern void scene_answer(const Scene *scene, const Receipt *receipt,
						 const Settlement *settlement, ReceiptAnswer *answer);

/* The same for a receipt that was settled before, without any lock */
extern void scene_answer_settled(IdemCall *call, Payment *payment, const Receipt *receipt,
								 ReceiptAnswer *answer);

/* Put an answer into the call's row, that of idem_confirm_payment, but its outcome */
extern void receipt_put_answer(IdemCall *call, const ReceiptAnswer *answer);

/*
 * Adopt the orphans that name a payment, right after it was inserted, while the order's
 * and the payment's names are locked and the order's row, if it has one, too.
 * payment and order are brought up to date.  The names may be unlocked on
 * return: from the insert on, whoever deals with this order meets the payment.
 */
extern void receipt_adopt_orphans(IdemCall *call, Payment *payment, Order *order);

#endif							/* IDEM_RECEIPT_H */
