# idem: build, install and test with PGXS.
#
#   make                     build, here or in another directory: make -f /path/to/Makefile
#   make install             into the installation of PG_CONFIG
#   make installcheck        regress and isolation suites on a server that is running
#   make prove_installcheck  TAP suite on clusters of its own, as anybody but root
#   make check               everything on throw-away clusters; installs what is missing (Debian)
#   make demo                a story told by a running database; installs what is missing (Debian)
#   make bench               benchmarks; ONLY= CLIENTS= SECONDS= ROUNDS= HUGE_PAGES=, see test/bench/README.md
#
# PG_CONFIG= chooses the server, WERROR=1 makes warnings errors.

PG_CONFIG ?= pg_config
srcdir := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))

# These prepare a machine that may have no PostgreSQL yet: they cannot need PGXS.
HOUSE_GOALS = check demo bench
ifneq (,$(filter $(HOUSE_GOALS),$(MAKECMDGOALS)))

check demo bench:
	@PG_CONFIG='$(PG_CONFIG)' BENCH_CLIENTS='$(CLIENTS)' BENCH_SECONDS='$(SECONDS)' BENCH_ROUNDS='$(ROUNDS)' BENCH_ONLY='$(ONLY)' BENCH_HUGE_PAGES='$(HUGE_PAGES)' \
	bash '$(srcdir)/test/run/$@'

OTHER_GOALS = $(filter-out $(HOUSE_GOALS),$(MAKECMDGOALS))
$(OTHER_GOALS):
	@$(MAKE) -f '$(firstword $(MAKEFILE_LIST))' $@

.PHONY: $(HOUSE_GOALS) $(OTHER_GOALS)

else

PGXS := $(shell $(PG_CONFIG) --pgxs)
ifeq (,$(wildcard $(PGXS)))
$(error PG_CONFIG=$(PG_CONFIG) leads to no PGXS. Install the server's headers (Debian: postgresql-server-dev-NN) or name another PG_CONFIG; "make check" and "make demo" install what is missing)
endif

# The suites, in the order in which they run.  Who adds a file adds its name:
# test/t/000_house.pl compares.
REGRESS = catalog access errors machine define outbox direct direct_change key order payment_create payment_batch token payment_life confirm receipt review anomaly refund refund_settle dispute brake channel notification adapter refund_sum campaign entitlement hook request lease stuck attach move bypass subscription inbox verify drop_guard
ISOLATION = call_race line_race create_race request_key_race token_race order_race close_race confirm_race review_race cancel_race refund_race refund_find_race dispute_race refund_sum_race brake_race anomaly_race access_race machine_race notification_race define_race attach_race request_race lease_race entitlement_race hook_race subscription_race

# Debian's packages of 13 have no isolation tester.
SPECS := $(ISOLATION)
ifeq (,$(wildcard $(dir $(PGXS))../test/isolation/pg_isolation_regress*))
ISOLATION :=
endif

# The extension script, in the order in which the parts build on each other:
# tables and types come before the functions that use them.
SQL_PARTS = prelude domain machine define outbox access key token anomaly order payment payment_life receipt refund brake dispute channel notification adapter campaign entitlement hook request lease subscription inbox attach move guard stuck operate

EXTENSION = idem
EXTVERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" '$(srcdir)/idem.control')
DATA_built = sql/idem--$(EXTVERSION).sql
DATA = $(patsubst $(srcdir)/%,%,$(wildcard $(srcdir)/sql/idem--*--*.sql))

MODULE_big = idem
OBJS := $(patsubst $(srcdir)/%.c,%.o,$(sort $(wildcard $(srcdir)/src/*.c)))
BUILD_FOLDERS := $(shell mkdir -p src sql)

# Our own files are held to -Wall -Wextra.  The server's headers would not
# pass, and are therefore system headers.
PG_CPPFLAGS = -isystem $(shell $(PG_CONFIG) --includedir-server)
PG_CFLAGS = -Wall -Wextra $(if $(filter 1,$(WERROR)),-Werror)

# Bitcode for the server's JIT takes the very clang that the server was built
# with; without it the library is built all the same.
PG_CLANG := $(shell sed -n 's/^CLANG *= *//p' '$(dir $(PGXS))../Makefile.global')
ifeq (,$(shell command -v $(or $(PG_CLANG),/nonexistent)))
override with_llvm = no
endif

# In databases of their own: UTF8, so that characters may have many bytes, and C.
ENCODING = UTF8
NO_LOCALE = 1
REGRESS_OPTS = --inputdir=$(srcdir)/test --load-extension=idem
ISOLATION_OPTS = --inputdir=$(srcdir)/test --outputdir=. --load-extension=idem
REGRESS_PREP = expected-link

EXTRA_CLEAN = idem.map results log output_iso tmp_check regression.diffs regression.out

include $(PGXS)

# Rules stand after the include, or the first of them would be the default goal.

# In another directory only sources come from here, not what was built here.
srcdir := $(srcdir)
override VPATH :=
vpath %.c $(srcdir)
vpath %.control $(srcdir)

# The server's flags are those of its own compiler.
ifneq (,$(findstring clang,$(shell $(CC) --version)))
override CFLAGS += -Wno-unknown-warning-option -Wno-ignored-optimization-argument
endif

# Nothing is visible outside the library but what the server has to find.  From
# 16 on its macros mark that; before, the linker is told what they declared.
ifneq (,$(filter 13 14 15,$(MAJORVERSION)))
override LDFLAGS_SL += -Wl,--version-script=idem.map
idem$(DLSUFFIX): idem.map
idem.map: $(OBJS)
	@{ echo '{ global: _PG_init; Pg_magic_func;'; \
	nm $(OBJS) | sed -n 's/.* T \(pg_finfo_\(.*\)\)$$/\1; \2;/p'; \
	echo 'local: *; };'; } > $@
else
override CFLAGS += -fvisibility=hidden
endif

$(OBJS) $(OBJS:.o=.bc): $(wildcard $(srcdir)/src/*.h) $(srcdir)/Makefile

SQL_FILES = $(SQL_PARTS:%=$(srcdir)/sql/parts/%.sql)
$(DATA_built): $(SQL_FILES) $(srcdir)/idem.control $(srcdir)/Makefile
	cat $(SQL_FILES) > $@

# The suites look for ./expected, which another build directory does not have.
expected-link:
	@test -e expected || ln -s '$(abspath $(srcdir))/expected' expected

clean: clean-expected-link
clean-expected-link:
	@if test -L expected; then rm expected; fi

# The installation must have idem: make install comes first.
PROVE_TESTS = test/t/*.pl
prove_installcheck:
	rm -rf tmp_check && mkdir tmp_check
	cd '$(srcdir)' && \
	TESTDIR='$(CURDIR)' TESTDATADIR='$(CURDIR)/tmp_check' TESTLOGDIR='$(CURDIR)/tmp_check/log' \
	PATH="$(bindir):$$PATH" PGPORT='6$(DEF_PGPORT)' PG_REGRESS='$(top_builddir)/src/test/regress/pg_regress' \
	IDEM_LIBRARY='$(pkglibdir)/idem$(DLSUFFIX)' IDEM_REGRESS='$(REGRESS)' IDEM_ISOLATION='$(SPECS)' IDEM_PARTS='$(SQL_PARTS)' \
	prove -I '$(abspath $(top_srcdir)/src/test/perl)' -I test/perl $(PROVE_FLAGS) $(PROVE_TESTS)

print-%:
	@echo '$($*)'

.PHONY: expected-link clean-expected-link prove_installcheck

endif
