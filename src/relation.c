/*-------------------------------------------------------------------------
 * relation.c
 *	  The extension's tables, indexes and sequences by name.
 *
 * A call asks for some twenty of them.  An answer is kept until the server's
 * own cache of names would forget it: the table was renamed, moved or dropped,
 * or another one got the name.  Nearly all names are literals, so the first try
 * goes by where the name stands, and then compares it.
 *-------------------------------------------------------------------------
 */
#include "relation.h"

#include "common/hashfn.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

/* A name in a house: padded with zeroes */
typedef struct RelationName
{
	Oid			nspoid;
	NameData	name;
} RelationName;

typedef struct KnownName
{
	RelationName name;			/* hash key */
	Oid			oid;
	uint32		hashvalue;		/* in the server's cache */
} KnownName;

static HTAB *names = NULL;

/* Where a name stood when it was last asked for; a power of two */
#define NPLACES 256

typedef struct Place
{
	const char *at;
	const KnownName *known;		/* NULL: none */
} Place;

static Place places[NPLACES];

static inline Place *
place_of(const char *name)
{
	return &places[murmurhash32((uint32) (uintptr_t) name) % NPLACES];
}

/* Syscache callback: what a name stands for changed (0: any) */
static void
forget_names(Datum arg pg_attribute_unused(), int cacheid pg_attribute_unused(),
			 uint32 hashvalue)
{
	HASH_SEQ_STATUS scan;
	KnownName  *known;

	memset(places, 0, sizeof(places));
	hash_seq_init(&scan, names);
	while ((known = hash_seq_search(&scan)) != NULL)
	{
		if (hashvalue == 0 || hashvalue == known->hashvalue)
			hash_search(names, &known->name, HASH_REMOVE, NULL);
	}
}

static void
relation_name(const IdemHouse *house, const char *name, RelationName *full)
{
	memset(full, 0, sizeof(RelationName));
	full->nspoid = house->nspoid;
	strlcpy(NameStr(full->name), name, NAMEDATALEN);
}

Oid
relation_oid(const IdemHouse *house, const char *name)
{
	Place	   *place = place_of(name);
	RelationName full;
	KnownName  *known;
	Oid			oid;

	if (place->at == name && place->known != NULL && place->known->name.nspoid == house->nspoid &&
		strcmp(NameStr(place->known->name.name), name) == 0)
		return place->known->oid;

	relation_name(house, name, &full);
	known = hash_search(names, &full, HASH_FIND, NULL);
	if (known == NULL)
	{
		oid = get_relname_relid(name, house->nspoid);
		if (!OidIsValid(oid))
			return oid;
		known = hash_search(names, &full, HASH_ENTER, NULL);
		known->oid = oid;
		known->hashvalue = GetSysCacheHashValue2(RELNAMENSP, CStringGetDatum(NameStr(full.name)),
												 ObjectIdGetDatum(house->nspoid));
	}
	place->at = name;
	place->known = known;
	return known->oid;
}

Oid
relation_demand(const IdemHouse *house, const char *what, const char *name)
{
	Oid			oid = relation_oid(house, name);

	if (!OidIsValid(oid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("%s \"%s\" does not exist in schema %s", what, name, house->schema),
				 errdetail("It belongs to the extension idem.")));
	return oid;
}

/*
 * Called once, when the library is loaded.
 */
void
idem_init_relation(void)
{
	HASHCTL		info;

	memset(&info, 0, sizeof(info));
	info.keysize = sizeof(RelationName);
	info.entrysize = sizeof(KnownName);
	names = hash_create("idem relations", 64, &info, HASH_ELEM | HASH_BLOBS);
	CacheRegisterSyscacheCallback(RELNAMENSP, forget_names, (Datum) 0);
}
