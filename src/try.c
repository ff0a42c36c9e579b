/*-------------------------------------------------------------------------
 * try.c
 *	  Try something that may fail in an expected way.
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
 * Take a step.  NULL: it was taken; else the error that undid it, whatever it is.
 */
ErrorData *
idem_catch(IdemStep step, void *arg)
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
	return error;
}

/*
 * The same, of one of two SQLSTATEs that are expected.  Any other error is
 * raised.
 */
ErrorData *
idem_try(IdemStep step, void *arg, int expected, int also_expected)
{
	ErrorData  *error = idem_catch(step, arg);

	if (error != NULL && error->sqlerrcode != expected && error->sqlerrcode != also_expected)
		ReThrowError(error);
	return error;
}
