/*-------------------------------------------------------------------------
 * idem.c
 *	  The library's beginning: settings, and the modules' own beginnings.
 *-------------------------------------------------------------------------
 */
#include "access.h"
#include "call.h"
#include "direct.h"
#include "hook.h"
#include "idem.h"
#include "line.h"
#include "log.h"
#include "machine.h"
#include "move.h"
#include "relation.h"
#include "token.h"
#include "wait.h"

PG_MODULE_MAGIC;

int			idem_wait_ms = 1000;
int			idem_node_id = 0;
int			idem_close_grace_s = 600;
int			idem_max_attempts = 10;
int			idem_outbox_retention_s = 24 * 60 * 60;
int			idem_inbox_retention_s = 30 * 24 * 60 * 60;
int			idem_auto_refund = IDEM_AUTO_REFUND_ON;
int			idem_auto_refund_hourly = 100;
int			idem_orphan_grace_s = 300;
bool		idem_allow_drop = false;
bool		idem_restoring = false;
char	   *idem_actor = NULL;

static const struct config_enum_entry auto_refund_options[] = {
	{"on", IDEM_AUTO_REFUND_ON, false},
	{"hold", IDEM_AUTO_REFUND_HOLD, false},
	{NULL, 0, false}
};

void		_PG_init(void);

/* Of every call, and of those who operate */
static void
define_general_settings(void)
{
	DefineCustomIntVariable("idem.wait",
							"How long a request waits for another transaction before it answers in_progress.",
							"Facts wait until they can be recorded. 0: do not wait.",
							&idem_wait_ms, 1000, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("idem.node_id",
							"The number of this node in the numbers that idem_next_no() makes.",
							"Clusters whose numbers must not collide need different ones.",
							&idem_node_id, 0, 0, 1023,
							PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("idem.allow_drop",
							 "Lets DROP EXTENSION, DROP SCHEMA and DROP OWNED remove idem while it holds rows.",
							 NULL,
							 &idem_allow_drop, false,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("idem.restoring",
							 "Lets rows be loaded into attached tables in whatever state they were, unrecorded.",
							 "For restoring rows alone; a whole dump makes the guards after the rows and does not need it.",
							 &idem_restoring, false,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("idem.actor",
							   "Who acts, as the application knows him; noted in history and anomalies.",
							   NULL,
							   &idem_actor, "",
							   PGC_USERSET, 0, NULL, NULL, NULL);
}

/* Of money, and of what channels tell of it */
static void
define_payment_settings(void)
{
	DefineCustomIntVariable("idem.close_grace",
							"How long after its expiry a payment unknown to the channel stays open.",
							"A payment may still be on its way to the channel when the channel says that it does not exist.",
							&idem_close_grace_s, 600, 0, INT_MAX,
							PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomEnumVariable("idem.auto_refund",
							 "Whether automatic refunds may be sent, or are held until a human lets them go.",
							 "Held refunds are requested and reserve their money all the same.",
							 &idem_auto_refund, IDEM_AUTO_REFUND_ON, auto_refund_options,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("idem.auto_refund_hourly",
							"How many automatic refunds a tenant makes in 60 minutes before they are held.",
							"An anomaly of kind auto_refund_held is opened then; resolving it ends the hold.",
							&idem_auto_refund_hourly, 100, 0, INT_MAX,
							PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("idem.orphan_grace",
							"How long a channel is told to repeat a fact that belongs to nothing we know.",
							"It may have been faster than the commit of what it belongs to.",
							&idem_orphan_grace_s, 300, 0, INT_MAX,
							PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);
}

/* Of events, and of messages */
static void
define_event_settings(void)
{
	DefineCustomIntVariable("idem.max_attempts",
							"How often an event is handed out before it is given up.",
							"It is dead then, and its key goes on without it.",
							&idem_max_attempts, 10, 1, 1000,
							PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("idem.outbox_retention",
							"How long events are kept that all subscriptions have read.",
							"The sweep empties slices of the log as a whole, so that some are kept half as long again.",
							&idem_outbox_retention_s, 24 * 60 * 60, 0, INT_MAX,
							PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("idem.inbox_retention",
							"How long a message that was accepted is remembered.",
							"None is forgotten that is younger than the oldest parked or dead event.",
							&idem_inbox_retention_s, 30 * 24 * 60 * 60, 0, INT_MAX,
							PGC_SUSET, GUC_UNIT_S, NULL, NULL, NULL);
}

/*
 * The library may be loaded by the first call in a session as well as by
 * shared_preload_libraries; only then is there shared memory, which wakes those
 * who wait for events.
 */
void
_PG_init(void)
{
	define_general_settings();
	define_payment_settings();
	define_event_settings();
	MarkGUCPrefixReserved("idem");

	idem_init_call();
	idem_init_access();
	idem_init_machine();
	idem_init_relation();
	idem_init_direct();
	idem_init_line();
	idem_init_log();
	idem_init_move();
	idem_init_hook();
	idem_init_token();
	idem_init_wait();
}
