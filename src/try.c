/*-------------------------------------------------------------------------
 * try.c
 *	  Try something that may fail in one expected way.
 *
 * A subtransaction: what the step has done and locked goes with its failure,
 * and stays otherwise.  Only for what is rare and dear anyhow; no call that
 * applications make all day may need one.
 *-------------------------------------------------------------------------
 */
#include "try.h"

#include "access/xact.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

/*
 * Take a step.  NULL: it was taken; else the error of the expected SQLSTATE
 * that undid it.  Any other error is raised.
 */
ErrorData *
idem_try(IdemStep step, void *arg, int expected)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		step(arg);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;

	if (error != NULL && error->sqlerrcode != expected)
		ReThrowError(error);
	return error;
}
