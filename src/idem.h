/*-------------------------------------------------------------------------
 * idem.h
 *	  What every module needs: SQLSTATEs, classes of locks, and settings.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_H
#define IDEM_H

#include "compat.h"

/* SQLSTATE class ID; the words are those of docs/errors.md */
#define ERRCODE_IDEM_KEY_CONFLICT MAKE_SQLSTATE('I', 'D', '0', '0', '1')
#define ERRCODE_IDEM_TOKEN_REJECTED MAKE_SQLSTATE('I', 'D', '0', '0', '2')
#define ERRCODE_IDEM_ILLEGAL_TRANSITION MAKE_SQLSTATE('I', 'D', '0', '0', '3')
#define ERRCODE_IDEM_STALE_VERSION MAKE_SQLSTATE('I', 'D', '0', '0', '4')
#define ERRCODE_IDEM_FENCED MAKE_SQLSTATE('I', 'D', '0', '0', '5')
#define ERRCODE_IDEM_NOT_FOUND MAKE_SQLSTATE('I', 'D', '0', '0', '6')
#define ERRCODE_IDEM_PROTECTED MAKE_SQLSTATE('I', 'D', '0', '0', '7')
#define ERRCODE_IDEM_TENANT_DENIED MAKE_SQLSTATE('I', 'D', '0', '0', '8')

/*
 * The classes of our advisory locks (locktag_field4): neither those of users, 1
 * and 2, nor Citus's, 4 to 15.  Names and, by their sequence, numbers share one.
 */
#define IDEM_LOCK_NAME 77
#define IDEM_LOCK_ROW_LINE 78
#define IDEM_LOCK_TRANSACTION_LINE 79

/* Text keys: 1 to 255 bytes */
#define IDEM_KEY_BYTES 255

/* May refunds that nobody asked for be sent? */
typedef enum IdemAutoRefund
{
	IDEM_AUTO_REFUND_ON,
	IDEM_AUTO_REFUND_HOLD
} IdemAutoRefund;

/* Settings; units last in the name */
extern int	idem_wait_ms;
extern int	idem_node_id;
extern int	idem_close_grace_s;
extern int	idem_max_attempts;
extern int	idem_outbox_retention_s;
extern int	idem_inbox_retention_s;
extern int	idem_auto_refund;	/* IdemAutoRefund */
extern int	idem_auto_refund_hourly;
extern int	idem_orphan_grace_s;
extern bool idem_allow_drop;
extern bool idem_restoring;
extern char *idem_actor;

#endif							/* IDEM_H */
