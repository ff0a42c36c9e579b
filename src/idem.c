/*-------------------------------------------------------------------------
 * idem.c
 *	  The library's beginning: settings, and the modules' own beginnings.
 *-------------------------------------------------------------------------
 */
#include "access.h"
#include "call.h"
#include "hook.h"
#include "idem.h"
#include "machine.h"
#include "token.h"

PG_MODULE_MAGIC;

int			idem_wait_ms = 1000;
int			idem_node_id = 0;
int			idem_close_grace_s = 600;
int			idem_auto_refund = IDEM_AUTO_REFUND_ON;
int			idem_auto_refund_hourly = 100;
int			idem_orphan_grace_s = 300;
bool		idem_allow_drop = false;
char	   *idem_actor = NULL;

static const struct config_enum_entry auto_refund_options[] = {
	{"on", IDEM_AUTO_REFUND_ON, false},
	{"hold", IDEM_AUTO_REFUND_HOLD, false},
	{NULL, 0, false}
};

void		_PG_init(void);

/*
 * Nothing here needs shared memory, so the library may be loaded by the first
 * call in a session as well as by shared_preload_libraries.
 */
void
_PG_init(void)
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
	DefineCustomBoolVariable("idem.allow_drop",
							 "Lets DROP EXTENSION, DROP SCHEMA and DROP OWNED remove idem while it holds rows.",
							 NULL,
							 &idem_allow_drop, false,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("idem.actor",
							   "Who acts, as the application knows him; noted in history and anomalies.",
							   NULL,
							   &idem_actor, "",
							   PGC_USERSET, 0, NULL, NULL, NULL);
	MarkGUCPrefixReserved("idem");

	idem_init_call();
	idem_init_access();
	idem_init_machine();
	idem_init_hook();
	idem_init_token();
}
