/*-------------------------------------------------------------------------
 * refund_settle.h
 *	  What a channel's word means for a refund.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_REFUND_SETTLE_H
#define IDEM_REFUND_SETTLE_H

#include "refund.h"

/* In the order of result_names */
typedef enum RefundResult
{
	RESULT_SUCCEEDED,
	RESULT_FAILED,
	RESULT_CLOSED,
	RESULT_ABNORMAL,
	RESULT_TIMEOUT,
	RESULT_REVERSED,
	RESULT_UNKNOWN
} RefundResult;

/* What a result means: an outcome without a move, or moves */
typedef struct RefundVerdict
{
	const char *outcome;
	bool		succeeds;		/* first to succeeded */
	bool		reverses;		/* then, or alone, to reversed */
	bool		fails;			/* to where the result leads */
	bool		asks_again;		/* the channel is to be asked at once */
} RefundVerdict;

extern RefundResult refund_result(const char *word);
extern bool refund_is_failure(RefundResult result);
extern RefundStatus refund_failed_status(RefundResult result);	/* where a failure leads */

/* Judge a result, which is known, of a refund as it stands */
extern RefundVerdict refund_judge(IdemCall *call, const Refund *refund, const RefundFact *fact, RefundResult result);
extern bool refund_is_move(const RefundVerdict *verdict);


/* ---------- refund_sum.c ---------- */

/*
 * What of the latest sum that was told nothing accounts for: what has to be
 * booked.  gap_told: once the sum of this fact is noted.
 */
extern int64 refund_sum_gap(IdemCall *call, const Receipt *receipt);
extern int64 refund_sum_gap_told(IdemCall *call, const RefundFact *fact, const Receipt *receipt);

/* Is the sum of this fact the latest?  Then note it, in a locked receipt. */
extern bool refund_sum_is_news(const RefundFact *fact, const Receipt *receipt);
extern bool refund_sum_note(IdemCall *call, const RefundFact *fact, Receipt *receipt);

/* A free number for a nameless refund that makes the books reach a sum */
extern Datum refund_sum_number(IdemCall *call, const Receipt *receipt, int64 sum);

/* Can the latest sum contain it, booked or not? */
extern bool refund_sum_may_contain(const Refund *refund, const Receipt *receipt);

/* What of a receipt's nameless refunds has to give way */
typedef struct RefundShare
{
	List	   *cut;			/* those to be reversed; NIL: none */
	int64		amount;			/* how much has to give way */
	int64		rest;			/* what of those is to be booked anew */
	Refund	   *same;			/* one of just its amount, the only one to be cut; NULL: none */
} RefundShare;

/*
 * What it is of a refund that becomes known, and what it is that a new sum does
 * not contain.  cut: once that is booked.
 */
extern void refund_sum_share(IdemCall *call, const RefundFact *fact, RefundResult result, int64 amount,
							 const Receipt *receipt, RefundShare *share);
extern void refund_sum_surplus(IdemCall *call, const Receipt *receipt, RefundShare *share);
extern void refund_sum_cut(IdemCall *call, Receipt *receipt, const RefundShare *share);


/* ---------- refund_recognize.c ---------- */

/* What is known, and later locked, of the thing that a fact is about */
typedef struct Settle
{
	const RefundFact *fact;
	RefundResult result;
	const Receipt *money;		/* NULL: to be found; else amount is given, too */
	Refund	   *refund;			/* NULL: unknown */
	Receipt    *receipt;		/* that its money came from; NULL: unknown */
	Order	   *order;			/* locked, if its row may have to follow; NULL: none */
	Datum		number;			/* of one that is to be adopted, */
	int64		amount;			/* and what of it: 0 if it is booked already */
	RefundShare share;			/* what nameless refunds have to give to it */
	int64		excess;			/* the receipt's before */
	bool		is_midway;		/* the fact that this is part of does what follows */
	bool		is_done;		/* under the locks, and not only answered */
	bool		is_sum_new;		/* the sum that was told is the latest */
} Settle;

/* Does the fact name a refund, and not only say how much went back? */
extern bool refund_is_named(const RefundFact *fact);

/* Is it said in another currency than the money came in? */
extern bool refund_is_other_currency(const RefundFact *fact, NullableDatum currency);

/* Keep what the fact says in an anomaly, of the refund or of its receipt */
extern void settle_open_anomaly(IdemCall *call, const Settle *settle, const char *kind);
extern void settle_open_over_refund(IdemCall *call, const Settle *settle);
extern Datum settle_key(const Settle *settle);	/* of such an anomaly of the refund */

/* Is the channel's number another refund's already? */
extern bool settle_is_another(IdemCall *call, const Settle *settle, IdemSight sight);

/* What is there to be learnt of a known refund, or of the sum? */
extern bool settle_learns_number(const Settle *settle);
extern bool settle_learns_success(const Settle *settle);
extern bool settle_tells_sum(const Settle *settle);

/* What is answered of a fact that changes nothing */
typedef struct SettleAnswer
{
	const char *outcome;		/* NULL: there is something to do */
	const char *anomaly;		/* kind of the one that keeps it; NULL: none */
} SettleAnswer;

/* What may be answered as things are; only looked at */
extern SettleAnswer settle_recognize(IdemCall *call, const Settle *settle);
extern const char *settle_outcome_unbooked(const Settle *settle);

#endif							/* IDEM_REFUND_SETTLE_H */
