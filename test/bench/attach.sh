#!/bin/bash
# attach.sh: how long does idem_attach_machine lock a large table?  Run by hand,
# on a server of one's own: libpq's variables say which.
#
#   bash test/bench/attach.sh   attaches BENCH_ROWS (10,000,000) rows, a fifth of
#                               them active, BENCH_ROUNDS (3) times: without an
#                               active key, with one, with one whose index is
#                               there.  Beside each call stands what a writer waits
#                               who comes a little later; a scan and an index build
#                               by hand stand for comparison.
#
# The table is in the database idem_attach, which stays.

set -euo pipefail
rows=${BENCH_ROWS:-10000000}
rounds=${BENCH_ROUNDS:-3}

query() { psql -XAtq -v ON_ERROR_STOP=1 -d idem_attach "$@"; }
milliseconds() { query -o /dev/null -c 'SET max_parallel_workers_per_gather = 0' -c 'SET max_parallel_maintenance_workers = 0' -c '\timing on' -c "$1" | sed -n 's/^Time: \([0-9]*\).*/\1/p'; }

load() {
	query -o /dev/null -c 'CREATE EXTENSION idem' -c "SELECT idem_define_machine('ticket', '{\"initial\": [\"open\"], \"final\": [\"closed\"], \"active\": [\"open\", \"doing\"],
		\"moves\": [{\"event\": \"take\", \"from\": \"open\", \"to\": \"doing\"}, {\"event\": \"close\", \"from\": \"doing\", \"to\": \"closed\"}]}')" \
		-c 'CREATE TABLE ticket (id bigint PRIMARY KEY, seat text NOT NULL, status text NOT NULL, version int NOT NULL, price bigint, note text)' \
		-c "INSERT INTO ticket SELECT i, 'seat-' || i, CASE i % 10 WHEN 0 THEN 'open' WHEN 1 THEN 'doing' ELSE 'closed' END, 1, 9900, repeat('x', 40) FROM generate_series(1, $rows) i" \
		-c 'VACUUM ANALYZE ticket'
}

# attach TITLE ACTIVE_KEY
attach() {
	local call=$(mktemp) writer
	milliseconds "SELECT idem_attach_machine('ticket', 'status', 'ticket', version_column => 'version', active_key => $2)" >"$call" &
	sleep 0.2
	writer=$(milliseconds 'UPDATE ticket SET note = note WHERE id = 3')
	wait
	echo "$1: $(cat "$call") ms; a writer waited $writer ms"
	rm "$call"
	query -o /dev/null -c "SELECT idem_detach_machine('ticket')"
}

if createdb idem_attach 2>/dev/null; then load; fi
for ((round = 1; round <= rounds; round++)); do
	echo "a scan: $(milliseconds "SELECT count(*) FROM ticket WHERE status NOT IN ('open', 'doing', 'closed')") ms"
	attach "attach" NULL
	attach "attach, active_key" "'{seat}'"
	echo "an index build: $(milliseconds "CREATE UNIQUE INDEX ready ON ticket (seat) WHERE status IN ('open', 'doing')") ms"
	attach "attach, active_key, its index ready" "'{seat}'"
	query -c 'DROP INDEX ready'
done
