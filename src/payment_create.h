/*-------------------------------------------------------------------------
 * payment_create.h
 *	  Creating payments: what single calls and batches share.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_PAYMENT_CREATE_H
#define IDEM_PAYMENT_CREATE_H

#include "order.h"
#include "payment.h"
#include "receipt.h"
#include "token.h"

/* What the caller asks for, arguments already checked */
typedef struct CreateRequest
{
	Datum		order_id;
	int64		amount;			/* minor units */
	Datum		currency;		/* upper case */
	NullableDatum request_key;
	Token	   *token;			/* NULL: none */
	bool		token_is_new;	/* taken for granted: its insert tells if it is not */
	bool		repurchase;
	NullableDatum channel;
	NullableDatum account;
	NullableDatum payment_no;	/* the caller's own number */
	int64		lifetime_us;	/* 0: never expires; it begins when the payment does */
	NullableDatum metadata;
} CreateRequest;

/* What is there, as one look found it */
typedef struct CreateScene
{
	IdemRow    *key;			/* the request key's row, if it made no payment */
	Payment    *by_key;			/* the payment that it made or was bound to */
	TokenUse   *use;			/* of the token, if it was consumed */
	Payment    *by_token;		/* the payment that it leads to */
	Payment    *by_no;			/* the payment that has the wanted number */
	Order	   *order;
	Payment    *active;			/* holds the order's slot */
	Payment    *latest;			/* its purchase is the current one */
	Payment    *paid;			/* paid the current purchase */
	bool		orphans;		/* money waits for the wanted number */
} CreateScene;

/* In the order of create_outcome_names */
typedef enum CreateOutcome
{
	CREATE_CREATED,
	CREATE_REPLAYED,
	CREATE_EXISTING,
	CREATE_ALREADY_PAID,
	CREATE_OTHER_CHANNEL,
	CREATE_CLOSING,
	CREATE_IN_REVIEW,
	CREATE_ORDER_CLOSED,
	CREATE_BURNED,
	CREATE_IN_PROGRESS,
	CREATE_ERROR
} CreateOutcome;

/* What is to be answered, and what is to be done before */
typedef struct CreateDecision
{
	CreateOutcome outcome;
	Payment    *payment;		/* the one that the answer shows */
	int32		purchase_no;	/* of a payment to be created */
	Payment    *expired;		/* to be closed or put into closing first */
	bool		bind;			/* the request key is to be bound to payment */
	bool		consume;		/* the token is to be consumed by payment */
	int			sqlstate;		/* of CREATE_ERROR */
	const char *message;		/* primary message of CREATE_ERROR */
	const char *detail;			/* what is wrong; NULL: a field differs */
	const char *differs;		/* the first field that differs */
	const char *hint;
} CreateDecision;

/* payment_decide.c */
extern void create_gather(IdemCall *call, const CreateRequest *request,
						  IdemSight sight, CreateScene *scene);
extern void create_decide(IdemCall *call, const CreateRequest *request,
						  const CreateScene *scene, CreateDecision *decision);
extern bool create_writes(const CreateDecision *decision);
extern void create_reject(CreateDecision *decision, const char *detail);

/* payment_create.c */
#define CREATE_COLUMNS 15
extern void create_one(IdemCall *call, CreateRequest *request, CreateDecision *decision);
extern void create_show(IdemCall *call, int first_column, const CreateRequest *request,
						const CreateDecision *decision);
extern Payment *create_payment_of(IdemCall *call, const CreateRequest *request,
								  const CreateScene *scene, const CreateDecision *decision,
								  Datum number);
extern const char *create_bad_number(Datum payment_no);
extern bool create_read_token(IdemCall *call, NullableDatum chars, CreateRequest *request,
							  CreateDecision *decision);
extern const char *const create_outcome_names[];

#endif							/* IDEM_PAYMENT_CREATE_H */
