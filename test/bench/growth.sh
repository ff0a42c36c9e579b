#!/bin/bash
# growth.sh: does idem_request stay as fast when it is large, and as small when
# it is busy?  Run by hand, on a server of one's own: libpq's variables say which.
#
#   bash test/bench/growth.sh few|many   latency of begin and complete among BENCH_ROWS
#   bash test/bench/growth.sh busy       size of the table while BENCH_CLIENTS
#                                        begin and complete and one sweeps, for
#                                        BENCH_SECONDS
#
# few is 10,000 rows, many is BENCH_ROWS (10,000,000); each in a database of its own,
# which stays, so that the two may take turns as often as one likes.  An answer
# lives for 5 seconds when it is busy.

set -euo pipefail
rows=${BENCH_ROWS:-10000000}
clients=${BENCH_CLIENTS:-8}
seconds=${BENCH_SECONDS:-600}
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT

query() { psql -XAtq -v ON_ERROR_STOP=1 -d "idem_growth_$1" -c "$2"; }

# make_database NAME: true if it was not there.
make_database() {
	createdb "idem_growth_$1" 2>/dev/null || return 1
	query "$1" 'CREATE EXTENSION idem'
}

# Past the triggers, as a restore would.
load() {
	query "$1" "
		SET session_replication_role = replica;
		INSERT INTO idem_request (tenant_id, scope, key, status, attempt, fingerprint_version, on_expiry, first_at, lease_until, expires_at, response_status, response)
		SELECT 'acme', 'load', md5(i::text), 'completed', i, 1, 'resume', now(), now(), now() + interval '1 day' + i * interval '1 microsecond', 200, '{\"ok\": true}'
		FROM generate_series(1, $2) i"
	query "$1" "SELECT setval('idem_attempt', $2)" >/dev/null
	query "$1" 'VACUUM (ANALYZE) idem_request'
}

# script TTL: a request, in two transactions.
script() {
	cat <<-SQL
		\set k random(1, 1000000000000)
		SELECT attempt FROM idem_begin_request('acme', 'new', md5(:k::text), '{"n": 1}', ttl => '$1') \gset
		SELECT outcome FROM idem_complete_request('acme', 'new', md5(:k::text), :attempt, '{"ok": true}');
	SQL
}

latency() {
	local n=10000
	[ "$1" = few ] || n=$rows
	if make_database "$1"; then load "$1" "$n"; fi
	script '1 day' >"$work/request.sql"
	pgbench -n -r -M prepared -c 2 -t 2500 -f "$work/request.sql" "idem_growth_$1" |
		awk -v name="$1" '/idem_begin/ { begin = $1 } /idem_complete/ { complete = $1 } END { printf "%s: begin %s ms, complete %s ms\n", name, begin, complete }'
}

busy() {
	local step=$((seconds / 20 > 0 ? seconds / 20 : 1))
	make_database busy || true
	script '5 seconds' >"$work/request.sql"
	echo 'SELECT * FROM idem_sweep(1000);' >"$work/sweep.sql"
	pgbench -n -M prepared -c "$clients" -T "$seconds" -f "$work/request.sql" idem_growth_busy >"$work/request.log" 2>&1 &
	pgbench -n -M prepared -c 1 -T "$seconds" -f "$work/sweep.sql" idem_growth_busy >"$work/sweep.log" 2>&1 &
	echo 'second  live rows  dead rows  table MB  indexes MB  autovacuums'
	for ((second = step; second <= seconds; second += step)); do
		sleep "$step"
		query busy "
			SELECT format('%6s %10s %10s %9s %11s %12s', $second, (SELECT count(*) FROM idem_request), n_dead_tup,
				pg_table_size(relid) >> 20, pg_indexes_size(relid) >> 20, autovacuum_count)
			FROM pg_stat_user_tables WHERE relname = 'idem_request'"
	done
	wait
	sed -n 's/^tps = \([0-9]*\).*/requests a second: \1/p' "$work/request.log"
}

case ${1:-} in
few | many) latency "$1" ;;
busy) busy ;;
*) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
