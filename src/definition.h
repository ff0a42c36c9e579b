/*-------------------------------------------------------------------------
 * definition.h
 *	  The definition of a state machine: JSON that makes sense, or an error.
 *-------------------------------------------------------------------------
 */
#ifndef IDEM_DEFINITION_H
#define IDEM_DEFINITION_H

#include "machine.h"

#include "utils/jsonb.h"

/* Read a definition; 22023 says what is wrong with it */
extern Machine *definition_read(IdemCall *call, const char *name, Jsonb *definition);

/* What becomes of those who live by other rules */
typedef enum RuleChange
{
	RULES_SAME,
	RULES_WIDER,				/* whatever was legal still is */
	RULES_NARROWER,				/* a birth or a move is no longer legal, or guarded otherwise */
	RULES_LOSE_STATES			/* that a row may be in */
} RuleChange;

extern RuleChange definition_compare(const Machine *old, const Machine *new);

/* Are the same states active, as far as rows can be in them? */
extern bool definition_same_active(const Machine *old, const Machine *new);

#endif							/* IDEM_DEFINITION_H */
