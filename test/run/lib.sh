# Common to check, demo and bench: a machine that has what is needed, a copy of
# the tree that an unprivileged user owns, an installation of PostgreSQL to
# install idem into, and a throw-away cluster.
#
# All that is made lives in one temporary directory, $work, and goes with it,
# also on failure or Ctrl-C.  Neither the system's clusters nor the files of
# the server's packages are touched: PostgreSQL's programs find their libraries
# and data relative to themselves, so a mirror of the installation below $work,
# of real programs and links to all the rest, is an installation of our own.

set -euo pipefail
export LC_ALL=C.UTF-8
unset PGHOST PGHOSTADDR PGPORT PGUSER PGDATABASE PGPASSWORD PGSERVICE PGOPTIONS PGDATA PGAPPNAME
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
umask 022

tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
work=
started=$(date +%s)

say() { printf '%s\n' "$*"; }
die() { printf 'idem: %s\n' "$*" >&2; exit 1; }
elapsed() { echo $(($(date +%s) - started)); }
is_root() { [ "$(id -u)" -eq 0 ]; }

# ---- the machine -------------------------------------------------------------

# Does this pg_config stand for a server with its headers?
usable() {
	local programs
	programs=$("$1" --bindir 2>/dev/null) || return 1
	[ -x "$programs/postgres" ] && [ -x "$programs/initdb" ] && [ -f "$("$1" --pgxs)" ] &&
		[ -f "$("$1" --includedir-server)/postgres.h" ]
}

# Sets PG_CONFIG to the server to use.  Failing that, server_package says what
# to install: "server", the distribution's own, or "server-NN".
find_server() {
	local asked=$1 found
	server_package=server
	if usable "$asked"; then PG_CONFIG=$asked; return; fi
	if [[ $asked =~ ^/usr/lib/postgresql/([0-9]+)/bin/pg_config$ ]]; then
		server_package=server-${BASH_REMATCH[1]}
		return 1
	fi
	[ "$asked" = pg_config ] || die "PG_CONFIG=$asked does not lead to a PostgreSQL server with its headers"
	for found in $(ls -vr /usr/lib/postgresql/*/bin/pg_config 2>/dev/null); do
		if usable "$found"; then PG_CONFIG=$found; return; fi
	done
	found=$(ls -vr /usr/lib/postgresql/*/bin/postgres 2>/dev/null | head -n 1)
	if [ -n "$found" ]; then server_package=server-$(basename "${found%/bin/postgres}"); fi
	return 1
}

have() { [ -x "/usr/sbin/$1" ] || command -v "$1" >/dev/null; }
have_perl_module() { have perl && perl "-M$1" -e 1 2>/dev/null; }
# the distribution's Python, whatever else is on the PATH: packages are for that one
have_python_module() { [ -x /usr/bin/python3 ] && /usr/bin/python3 -c "import $1" 2>/dev/null; }
have_header() { have gcc && echo "#include <$1>" | gcc -E - >/dev/null 2>&1; }
have_compiler() { have gcc && echo '#include <stdio.h>' | gcc -E - >/dev/null 2>&1; }

have_extension() { usable "${PG_CONFIG:-}" && [ -f "$("$PG_CONFIG" --sharedir)/extension/$1.control" ]; }

# prepare_machine [tap | entry | pgq]...: installs what is missing for building
# and running, and for the TAP suite or the benchmarks that take it; where nothing
# is missing it asks nobody anything.
prepare_machine() {
	local asked=${PG_CONFIG:-pg_config} missing=() purposes=" $* "
	have_compiler || missing+=(gcc libc6-dev)
	have make || missing+=(make)
	if [[ $purposes == *" tap "* ]]; then
		have prove || missing+=(perl)
		have_perl_module IPC::Run || missing+=(libipc-run-perl)
		have pgbouncer || missing+=(pgbouncer)
		have_python_module flask || missing+=(python3-flask)
		have_python_module psycopg2 || missing+=(python3-psycopg2)
		have_python_module sqlalchemy || missing+=(python3-sqlalchemy)
		have_python_module pika || missing+=(python3-pika)
		[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || missing+=(rabbitmq-server)
	fi
	if [[ $purposes == *" entry "* ]]; then
		have redis-server || missing+=(redis-server)
		have_header hiredis/hiredis.h || missing+=(libhiredis-dev)
		have_header postgresql/libpq-fe.h || have_header libpq-fe.h || missing+=(libpq-dev)
	fi
	if find_server "$asked"; then
		server_package=server-$("$PG_CONFIG" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
	else
		missing+=("$server_package")
	fi
	if [[ $purposes == *" pgq "* ]]; then
		have_extension pgq || missing+=("${server_package/server/pgq}")
	fi
	if [ ${#missing[@]} -gt 0 ]; then
		have apt-get || die "please install what your system calls ${missing[*]}, and try again"
		say "== installing what is missing: ${missing[*]}"
		as_root bash "$tree/test/run/packages" "${missing[@]}" || die "could not install ${missing[*]}"
		find_server "$asked" || die "installed, but no PostgreSQL server with its headers is to be found"
	fi
	PG_CONFIG=$("$PG_CONFIG" --bindir)/pg_config
	say "== $("$PG_CONFIG" --version)"
}

as_root() {
	if is_root; then "$@"; return; fi
	have sudo || die "this takes root or sudo: $*"
	sudo "$@"
}

# ---- the workplace -----------------------------------------------------------

# Whoever builds and runs: PostgreSQL refuses root.
as_user() {
	if [ -z "${user:-}" ]; then "$@"; return; fi
	runuser -u "$user" -- env HOME="$work" "$@"
}

# servers FILE: the processes that such a file below $work names.
servers() { find "$work" -name "$1" -exec head -n 1 {} \; 2>/dev/null; }

clean_up() {
	local status=$? pid
	trap - EXIT
	trap '' INT TERM HUP
	cd /
	if [ -n "$work" ]; then
		# every server that still runs below $work goes at once: nothing is kept
		for pid in $(servers pgbouncer.pid) $(servers '*.server.pid') $(servers redis.pid); do kill -KILL "$pid" 2>/dev/null || true; done
		for pid in $(servers postmaster.pid); do
			kill -QUIT "$pid" 2>/dev/null || continue
			for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null && sleep 0.1 || break; done
		done
		if [ -n "${huge_pages_before:-}" ]; then set_huge_pages "$huge_pages_before"; fi
		if [ -n "${uninstall:-}" ]; then
			as_root make -s -C "$work/idem" PG_CONFIG="$PG_CONFIG" uninstall >/dev/null 2>&1
		fi
		rm -rf "$work" 2>/dev/null || { sleep 1; rm -rf "$work"; }
	fi
	exit "$status"
}

# make_workplace: $work with a copy of the tree in $work/idem, and the mirror
# of the installation; PG_CONFIG then leads to the mirror.
make_workplace() {
	local temporary=${TMPDIR:-/tmp} version
	# a socket's path has 107 bytes
	[ ${#temporary} -le 30 ] || temporary=/tmp
	trap clean_up EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	work=$(mktemp -d "$temporary/idem.XXXXXX")
	chmod 755 "$work"
	if is_root; then
		user=postgres
		id "$user" >/dev/null 2>&1 || user=nobody
		chown "$user:" "$work"
	fi
	cd "$work"
	as_user mkdir idem socket tmp
	version=$(sed -n "s/^default_version *= *'\(.*\)'/\1/p" "$tree/idem.control")
	tar -C "$tree" -cf - --exclude=./.git --exclude='*.o' --exclude='*.bc' --exclude='*.so' --exclude=./idem.map \
		--exclude="./sql/idem--$version.sql" --exclude=./results --exclude=./tmp_check --exclude='./regression.*' . |
		as_user tar -C idem -xf - --no-same-owner
	export TMPDIR=$work/tmp
	mirror_installation
}

# Programs find a directory by the way that leads to it from their own
# directory, so each directory stands below the mirror under its full path.
mirror_installation() {
	local mirror=$work/pg original=$PG_CONFIG directory
	directory=$("$original" --bindir)
	as_user mkdir -p "$mirror$directory"
	as_user cp -aL "$directory/." "$mirror$directory/"
	for directory in "$("$original" --pkglibdir)" "$("$original" --sharedir)"; do
		as_user mkdir -p "$mirror$directory"
		as_user cp -as "$directory/." "$mirror$directory/"
	done
	for directory in --includedir --pkgincludedir --includedir-server --libdir --localedir --mandir --docdir --sysconfdir; do
		directory=$("$original" "$directory")
		if [ ! -e "$mirror$directory" ]; then
			as_user mkdir -p "$mirror$(dirname "$directory")"
			as_user ln -s "$directory" "$mirror$directory"
		fi
	done
	# an idem of the system's does not belong to ours
	as_user find "$mirror" \( -name 'idem.*' -o -name 'idem--*' -o -path '*/bitcode/idem*' \) -not -type d -delete
	PG_CONFIG=$mirror$original
	if [ "$("$PG_CONFIG" --sharedir)" != "$mirror$("$original" --sharedir)" ]; then
		# Debian's 13 is like that
		say "== this PostgreSQL does not run from another place: idem is installed into the system"
		PG_CONFIG=$original
		install_as=as_root
		[ -e "$("$original" --pkglibdir)/idem.so" ] || uninstall=yes
	fi
	programs=$("$PG_CONFIG" --bindir)
	export PATH=$programs:$PATH
}

# quietly LOG COMMAND...: shows the log only when the command fails.
quietly() {
	local log=$1
	shift
	if "$@" >"$log" 2>&1; then return; fi
	cat "$log"
	return 1
}

cores=$(nproc 2>/dev/null || echo 2)

build() {
	quietly "$work/build.log" as_user make -C "$work/idem" -j"$cores" PG_CONFIG="$PG_CONFIG" "$@"
}

install_idem() {
	quietly "$work/install.log" "${install_as:-as_user}" make -C "$work/idem" PG_CONFIG="$PG_CONFIG" "$@" install
}

# start_cluster [setting=value]...: reached by nobody but us, through a socket
# in $work; so it needs no port of its own.
start_cluster() {
	local setting
	quietly "$work/initdb.log" as_user "$programs/initdb" -D "$work/data" -U postgres -A trust -E UTF8 --locale=C -N
	for setting in "listen_addresses=''" "unix_socket_directories='$work/socket'" "$@"; do
		say "$setting"
	done | as_user tee -a "$work/data/postgresql.conf" >/dev/null
	quietly "$work/start.log" as_user "$programs/pg_ctl" -D "$work/data" -l "$work/server.log" -w -s start ||
		{ cat "$work/server.log"; return 1; }
	export PGHOST=$work/socket PGUSER=postgres PGDATABASE=postgres
}

sql() { as_user "$programs/psql" -X -q -v ON_ERROR_STOP=1 "$@"; }
