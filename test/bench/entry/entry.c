/*
 * entry.c
 *	  How a payment is let in: by idem, or by Redis and PostgreSQL together.
 *
 *		entry CHAIN CONNECTIONS THREADS SECONDS NAME
 *
 * Each connection stands for a request handler: it takes one order after the
 * other through the steps of its chain, and waits for each step's answer before
 * it takes the next step.  The threads share the connections among them.  With as
 * many threads as connections each has one, and sleeps while a server is at work,
 * as request handlers do; with a thread a core the program takes as little as can
 * be of the machine that it shares with the servers.  The tokens are issued before.  Each connection then takes some
 * orders that do not count, until all have filled their caches and mapped what
 * is hot of the shared memory; from then on the clock runs.  Prints calls a second, and the median and the 99th
 * percentile of their latencies in ms.
 *
 * PostgreSQL is found by libpq's environment variables, Redis by REDIS_SOCKET.
 * NAME makes the orders of a run differ from those of all others.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <hiredis/hiredis.h>
#include <libpq-fe.h>

#define WARM_UP_CALLS 100
#define TOKENS_PER_SECOND 30000
#define REDIS_TOKEN_CHARS 32
#define NPARAMS 4				/* of each prepared statement: order, payment, event, token */

static void
die(const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}


/* ---------- the chains ---------- */

#define IDEM \
	"SELECT outcome, payment_no FROM idem_create_payment('bench', $1, 9900, 'CNY', token => $4)"

#define PAYMENT \
	"INSERT INTO peer.payment (tenant_id, payment_no, order_id, purchase_no, amount, currency," \
	" status, created_at, expires_at)" \
	" VALUES ('bench', $2, $1, 1, 9900, 'CNY', 'pending', clock_timestamp()," \
	" clock_timestamp() + interval '30 minutes')"

#define EVENT(from) \
	"INSERT INTO peer.outbox (id, tenant_id, aggregatetype, aggregateid, type, payload, created_at)" \
	" SELECT $3::uuid, tenant_id, 'order', order_id, 'payment.pending', jsonb_build_object('v', 1," \
	" 'tenant_id', tenant_id, 'order_id', order_id, 'purchase_no', purchase_no, 'payment_no'," \
	" payment_no, 'from', NULL, 'to', status, 'event', 'create', 'amount', amount, 'currency'," \
	" currency, 'version', version, 'at', created_at), created_at FROM " from

#define HISTORY(from) \
	"INSERT INTO peer.history (tenant_id, entity, key, version, to_state, event, session_role," \
	" event_id, at) SELECT tenant_id, 'payment', payment_no, version, status, 'create'," \
	" session_user, $3::uuid, created_at FROM " from

/* The very same rows, without a second look at the payment */
#define VALUES_OF_NEW \
	"(VALUES ('bench', $2, $1, 1, 9900::bigint, 'CNY', 'pending', 1, clock_timestamp()))" \
	" AS p (tenant_id, payment_no, order_id, purchase_no, amount, currency, status, version, created_at)"

#define EXISTING \
	"SELECT payment_no, status FROM peer.payment WHERE tenant_id = 'bench' AND order_id = $1"

#define ALL_AT_ONCE \
	"WITH p AS (" PAYMENT " ON CONFLICT DO NOTHING RETURNING *)," \
	" e AS (" EVENT("p") "), h AS (" HISTORY("p") ") SELECT payment_no FROM p"

/* Who is no longer the lock's holder must not take it from the next one */
#define UNLOCK_SCRIPT \
	"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"

typedef enum
{
	POSTGRES, TAKE_TOKEN, LOCK_ORDER, TAKE_TOKEN_AND_LOCK_ORDER, UNLOCK_ORDER
} StepKind;

typedef struct
{
	StepKind	kind;
	const char *sql;			/* of POSTGRES */
	int			rows;			/* that it must return or insert */
} Step;

typedef struct
{
	const char *name;
	bool		redis;
	Step		steps[10];
	int			nsteps;
} Chain;

static const Chain chains[] = {
	{"idem", false, {
		{POSTGRES, IDEM, 1}
	}, 1},
	{"select", true, {
		{.kind = TAKE_TOKEN},
		{.kind = LOCK_ORDER},
		{POSTGRES, EXISTING, 0},
		{POSTGRES, ALL_AT_ONCE, 1},
		{.kind = UNLOCK_ORDER}
	}, 5},
	{"statement", true, {
		{.kind = TAKE_TOKEN},
		{.kind = LOCK_ORDER},
		{POSTGRES, ALL_AT_ONCE, 1},
		{.kind = UNLOCK_ORDER}
	}, 4},
	{"pipeline", true, {
		{.kind = TAKE_TOKEN_AND_LOCK_ORDER},
		{POSTGRES, ALL_AT_ONCE, 1},
		{.kind = UNLOCK_ORDER}
	}, 3},
	{"transaction", true, {
		{.kind = TAKE_TOKEN},
		{.kind = LOCK_ORDER},
		{POSTGRES, "BEGIN", 0},
		{POSTGRES, EXISTING, 0},
		{POSTGRES, PAYMENT, 1},
		{POSTGRES, HISTORY(VALUES_OF_NEW), 1},
		{POSTGRES, EVENT(VALUES_OF_NEW), 1},
		{POSTGRES, "COMMIT", 0},
		{.kind = UNLOCK_ORDER}
	}, 9},
	{"database", false, {
		{POSTGRES, ALL_AT_ONCE, 1}
	}, 1}
};

static const Chain *chain;
static const char *run_name;
static char unlock_sha[64];


/* ---------- tokens ---------- */

static char **tokens;
static int	ntokens;
static int	next_token;

/* Issue the tokens of idem, as a shop does when it shows the form */
static void
issue_by_idem(PGconn *conn)
{
	char		sql[200];
	PGresult   *result;

	snprintf(sql, sizeof(sql), "SELECT idem_issue_token('bench', 'payment', '1 hour')"
			 " FROM generate_series(1, %d)", ntokens);
	result = PQexec(conn, sql);
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		die("%s", PQerrorMessage(conn));
	for (int i = 0; i < ntokens; i++)
		tokens[i] = strdup(PQgetvalue(result, i, 0));
	PQclear(result);
}

static void
demand(redisContext *redis, redisReply *reply)
{
	if (reply == NULL || reply->type == REDIS_REPLY_ERROR)
		die("Redis: %s", reply == NULL ? redis->errstr : reply->str);
	freeReplyObject(reply);
}

/* Issue tokens that Redis keeps */
static void
issue_by_redis(redisContext *redis)
{
	FILE	   *random = fopen("/dev/urandom", "r");
	redisReply *reply;

	demand(redis, redisCommand(redis, "FLUSHALL"));
	for (int i = 0; i < ntokens; i++)
	{
		unsigned char bytes[REDIS_TOKEN_CHARS / 2];

		if (fread(bytes, sizeof(bytes), 1, random) != 1)
			die("no random bytes");
		tokens[i] = malloc(REDIS_TOKEN_CHARS + 1);
		for (size_t b = 0; b < sizeof(bytes); b++)
			sprintf(tokens[i] + 2 * b, "%02x", bytes[b]);
		redisAppendCommand(redis, "SET token:%s 1 EX 3600", tokens[i]);
	}
	fclose(random);
	for (int i = 0; i < ntokens; i++)
	{
		if (redisGetReply(redis, (void **) &reply) != REDIS_OK)
			die("Redis: %s", redis->errstr);
		demand(redis, reply);
	}
}

static const char *
take_token(void)
{
	int			i = __atomic_fetch_add(&next_token, 1, __ATOMIC_RELAXED);

	if (i >= ntokens)
		die("out of tokens: raise TOKENS_PER_SECOND");
	return tokens[i];
}


/* ---------- connections ---------- */

/* A request handler, and the order that it is at */
typedef struct
{
	int			id;
	PGconn	   *conn;
	redisContext *redis;
	int			step;			/* of the chain */
	int			replies;		/* that Redis still owes to the step */
	int			calls;
	double		begun;
	char		order_id[80];
	char		payment_no[24];
	char		event_id[40];
	char		owner[24];		/* of the lock */
	const char *token;
} Handler;

/* Like redisConnectUnix, which must not be met by another wait */
static redisContext *
connect_redis(void)
{
	const char *path = getenv("REDIS_SOCKET");
	redisContext *redis = redisConnectUnix(path == NULL ? "redis.sock" : path);

	if (redis == NULL || redis->err)
		die("Redis: %s", redis == NULL ? "no memory" : redis->errstr);
	return redis;
}

static PGconn *
connect_postgres(void)
{
	PGconn	   *conn = PQconnectdb("");

	if (PQstatus(conn) != CONNECTION_OK)
		die("%s", PQerrorMessage(conn));
	return conn;
}

/* Connect, and prepare the statements of the chain */
static void
open_handler(Handler *handler, int id)
{
	static const Oid types[NPARAMS] = {25, 25, 25, 25};

	memset(handler, 0, sizeof(*handler));
	handler->id = id;
	handler->conn = connect_postgres();
	for (int i = 0; i < chain->nsteps; i++)
	{
		char		name[16];
		PGresult   *result;

		if (chain->steps[i].kind != POSTGRES)
			continue;
		snprintf(name, sizeof(name), "s%d", i);
		result = PQprepare(handler->conn, name, chain->steps[i].sql, NPARAMS, types);
		if (PQresultStatus(result) != PGRES_COMMAND_OK)
			die("%s", PQerrorMessage(handler->conn));
		PQclear(result);
	}
	if (PQsetnonblocking(handler->conn, 1) != 0)
		die("%s", PQerrorMessage(handler->conn));

	if (chain->redis)
	{
		handler->redis = connect_redis();
		/* from here on it must not wait for answers */
		handler->redis->flags &= ~REDIS_BLOCK;
		fcntl(handler->redis->fd, F_SETFL, O_NONBLOCK);
	}
}


/* ---------- steps ---------- */

static void
send_postgres(Handler *handler)
{
	const char *params[NPARAMS] = {
		handler->order_id, handler->payment_no, handler->event_id, handler->token
	};
	char		name[16];

	snprintf(name, sizeof(name), "s%d", handler->step);
	/* a request fits a socket's buffer: it is never sent in part */
	if (!PQsendQueryPrepared(handler->conn, name, NPARAMS, params, NULL, NULL, 0) ||
		PQflush(handler->conn) != 0)
		die("%s", PQerrorMessage(handler->conn));
}

static void
send_redis(Handler *handler, StepKind kind)
{
	redisContext *redis = handler->redis;
	int			done = 0;

	handler->replies = 1;
	if (kind == TAKE_TOKEN || kind == TAKE_TOKEN_AND_LOCK_ORDER)
		redisAppendCommand(redis, "GETDEL token:%s", handler->token);
	if (kind == LOCK_ORDER || kind == TAKE_TOKEN_AND_LOCK_ORDER)
		redisAppendCommand(redis, "SET lock:%s %s NX PX 10000", handler->order_id, handler->owner);
	if (kind == TAKE_TOKEN_AND_LOCK_ORDER)
		handler->replies = 2;
	if (kind == UNLOCK_ORDER)
		redisAppendCommand(redis, "EVALSHA %s 1 lock:%s %s", unlock_sha, handler->order_id, handler->owner);
	while (!done)
	{
		if (redisBufferWrite(redis, &done) != REDIS_OK)
			die("Redis: %s", redis->errstr);
	}
}

static void
send_step(Handler *handler)
{
	const Step *step = &chain->steps[handler->step];

	if (step->kind == POSTGRES)
		send_postgres(handler);
	else
		send_redis(handler, step->kind);
}

static void
start_call(Handler *handler)
{
	int			n = handler->calls++;

	handler->step = 0;
	handler->token = strcmp(chain->name, "database") == 0 ? "" : take_token();
	snprintf(handler->order_id, sizeof(handler->order_id), "%s-%s-%d-%d",
			 chain->name, run_name, handler->id, n);
	snprintf(handler->payment_no, sizeof(handler->payment_no), "%010lu%04d%05d",
			 strtoul(run_name, NULL, 10) % 10000000000UL, handler->id, n % 100000);
	snprintf(handler->event_id, sizeof(handler->event_id), "%08lx-%04x-4000-8000-%012x",
			 strtoul(run_name, NULL, 10) & 0xffffffffUL, (unsigned) handler->id, (unsigned) n);
	snprintf(handler->owner, sizeof(handler->owner), "%d-%d", handler->id, n);
	handler->begun = now();
	send_step(handler);
}

/* Take what PostgreSQL has answered so far; true: that is all of it */
static bool
postgres_has_answered(Handler *handler)
{
	const Step *step = &chain->steps[handler->step];
	PGresult   *result;

	if (!PQconsumeInput(handler->conn))
		die("%s", PQerrorMessage(handler->conn));
	while (!PQisBusy(handler->conn))
	{
		result = PQgetResult(handler->conn);
		if (result == NULL)
			return true;
		if (PQresultStatus(result) == PGRES_TUPLES_OK ? PQntuples(result) != step->rows :
			PQresultStatus(result) != PGRES_COMMAND_OK || atoi(PQcmdTuples(result)) != step->rows)
			die("%s: %s", step->sql, PQresultErrorMessage(result));
		if (strcmp(chain->name, "idem") == 0 && strcmp(PQgetvalue(result, 0, 0), "created") != 0)
			die("idem answered %s", PQgetvalue(result, 0, 0));
		PQclear(result);
	}
	return false;
}

/* The same of Redis: a token that was there, a lock that was free and is still ours */
static bool
redis_has_answered(Handler *handler)
{
	redisReply *reply;

	if (redisBufferRead(handler->redis) != REDIS_OK)
		die("Redis: %s", handler->redis->errstr);
	while (handler->replies > 0)
	{
		if (redisGetReplyFromReader(handler->redis, (void **) &reply) != REDIS_OK)
			die("Redis: %s", handler->redis->errstr);
		if (reply == NULL)
			return false;
		if (reply->type == REDIS_REPLY_ERROR || reply->type == REDIS_REPLY_NIL ||
			(reply->type == REDIS_REPLY_INTEGER && reply->integer != 1))
			die("Redis refused: %s", reply->type == REDIS_REPLY_ERROR ? reply->str : "nil or 0");
		freeReplyObject(reply);
		handler->replies--;
	}
	return true;
}


/* ---------- threads ---------- */

typedef struct
{
	pthread_t	thread;
	int			epoll;
	Handler    *handlers;
	int			nhandlers;
	uint32_t   *latencies;		/* us, of the calls that count */
	size_t		nlatencies;
	size_t		size;
} Driver;

static pthread_barrier_t all_warm;
static double seconds;

static void
watch(int epoll, int fd, Handler *handler, bool redis)
{
	/* the lowest bit tells which of the handler's two sockets it is */
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uintptr_t) handler | redis};

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
		die("epoll: %s", strerror(errno));
}

static void
note_latency(Driver *driver, double latency)
{
	if (driver->nlatencies == driver->size)
	{
		driver->size = driver->size == 0 ? 65536 : driver->size * 2;
		driver->latencies = realloc(driver->latencies, sizeof(uint32_t) * driver->size);
	}
	driver->latencies[driver->nlatencies++] = (uint32_t) (latency * 1e6);
}

/*
 * One call of a handler has ended; true: it begins another one.  A call counts
 * when it ends before the deadline; without a deadline all only warm up.
 */
static bool
end_call(Driver *driver, Handler *handler, double deadline)
{
	double		end = now();

	if (deadline == 0)
	{
		if (handler->calls >= WARM_UP_CALLS)
			return false;
	}
	else if (end >= deadline)
		return false;
	else
		note_latency(driver, end - handler->begun);
	start_call(handler);
	return true;
}

/* Keep all handlers of a thread at work, until none begins another call */
static void
drive(Driver *driver, double deadline)
{
	struct epoll_event events[128];
	int			active = driver->nhandlers;

	for (int i = 0; i < driver->nhandlers; i++)
		start_call(&driver->handlers[i]);
	while (active > 0)
	{
		int			n = epoll_wait(driver->epoll, events, 128, -1);

		for (int i = 0; i < n; i++)
		{
			bool		redis = events[i].data.u64 & 1;
			Handler    *handler = (Handler *) (uintptr_t) (events[i].data.u64 & ~(uint64_t) 1);

			if (redis ? !redis_has_answered(handler) : !postgres_has_answered(handler))
				continue;
			if (++handler->step < chain->nsteps)
				send_step(handler);
			else if (!end_call(driver, handler, deadline))
				active--;
		}
	}
}

static void *
run_driver(void *arg)
{
	Driver	   *driver = arg;

	drive(driver, 0);
	pthread_barrier_wait(&all_warm);
	drive(driver, now() + seconds);
	return NULL;
}

static void
start_driver(Driver *driver, int first, int nhandlers)
{
	memset(driver, 0, sizeof(*driver));
	driver->epoll = epoll_create1(0);
	driver->nhandlers = nhandlers;
	driver->handlers = malloc(sizeof(Handler) * nhandlers);
	for (int i = 0; i < nhandlers; i++)
	{
		Handler    *handler = &driver->handlers[i];

		open_handler(handler, first + i);
		watch(driver->epoll, PQsocket(handler->conn), handler, false);
		if (chain->redis)
			watch(driver->epoll, handler->redis->fd, handler, true);
	}
}


/* ---------- the run ---------- */

static int
compare_latencies(const void *a, const void *b)
{
	uint32_t	x = *(const uint32_t *) a;
	uint32_t	y = *(const uint32_t *) b;

	return (x > y) - (x < y);
}

static void
report(Driver *drivers, int ndrivers)
{
	Driver	   *all = &drivers[0];
	double		count;

	for (int d = 1; d < ndrivers; d++)
	{
		for (size_t i = 0; i < drivers[d].nlatencies; i++)
			note_latency(all, drivers[d].latencies[i] / 1e6);
	}
	if (all->nlatencies == 0)
		die("no call was answered in time");
	count = all->nlatencies;
	qsort(all->latencies, all->nlatencies, sizeof(uint32_t), compare_latencies);
	printf("%.1f %.3f %.3f\n", count / seconds, all->latencies[(size_t) (count * 0.5)] / 1e3,
		   all->latencies[(size_t) (count * 0.99)] / 1e3);
}

/* Issue all tokens, and let Redis learn how to unlock */
static void
prepare(int nhandlers)
{
	ntokens = TOKENS_PER_SECOND * (seconds + 1) + nhandlers * WARM_UP_CALLS * 2;
	tokens = calloc(ntokens, sizeof(char *));
	if (chain->redis)
	{
		redisContext *redis = connect_redis();
		redisReply *reply;

		issue_by_redis(redis);
		reply = redisCommand(redis, "SCRIPT LOAD %s", UNLOCK_SCRIPT);
		if (reply == NULL || reply->type != REDIS_REPLY_STRING)
			die("Redis does not load the script");
		snprintf(unlock_sha, sizeof(unlock_sha), "%s", reply->str);
		freeReplyObject(reply);
		redisFree(redis);
	}
	else if (strcmp(chain->name, "idem") == 0)
	{
		PGconn	   *conn = connect_postgres();

		issue_by_idem(conn);
		PQfinish(conn);
	}
}

/* A connection takes up to three files, and 1,024 are what many systems give */
static void
allow_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		die("getrlimit: %s", strerror(errno));
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
		die("setrlimit: %s", strerror(errno));
}

int
main(int argc, char **argv)
{
	int			nhandlers;
	int			ndrivers;
	Driver	   *drivers;

	if (argc != 6)
		die("usage: entry CHAIN CONNECTIONS THREADS SECONDS NAME");
	for (size_t i = 0; i < sizeof(chains) / sizeof(chains[0]); i++)
	{
		if (strcmp(chains[i].name, argv[1]) == 0)
			chain = &chains[i];
	}
	nhandlers = atoi(argv[2]);
	ndrivers = atoi(argv[3]);
	seconds = atof(argv[4]);
	run_name = argv[5];
	if (chain == NULL || ndrivers < 1 || nhandlers < ndrivers || seconds <= 0)
		die("nothing to do");

	allow_files();
	prepare(nhandlers);
	drivers = malloc(sizeof(Driver) * ndrivers);
	pthread_barrier_init(&all_warm, NULL, ndrivers);
	for (int d = 0; d < ndrivers; d++)
	{
		int			first = nhandlers * d / ndrivers;

		start_driver(&drivers[d], first, nhandlers * (d + 1) / ndrivers - first);
	}
	for (int d = 0; d < ndrivers; d++)
		pthread_create(&drivers[d].thread, NULL, run_driver, &drivers[d]);
	for (int d = 0; d < ndrivers; d++)
		pthread_join(drivers[d].thread, NULL);
	report(drivers, ndrivers);
	return 0;
}
