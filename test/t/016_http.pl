# The HTTP guide, lived: the shop of test/clients/http on a real cluster, spoken
# to over real HTTP.  The shop is killed; the channel, another process, is the
# outside world, which remembers every call.
#
# Nothing here waits for a time to pass but one short lease: a request hangs
# because the channel does not answer or a table is locked, and is seen to hang.

use strict;
use warnings;
use utf8;

use Digest::SHA qw(sha256_hex);
use Encode qw(encode);
use HTTP::Tiny;
use IdemTest;
use IO::Socket::INET;
use JSON::PP;
use List::Util qw(uniq);
use Test::More;

# the distribution's own: it has the packages
my $python = '/usr/bin/python3';
plan skip_all => 'python3-flask and python3-psycopg2 are not installed'
  unless -x $python && (run_program($python, '-c', 'import flask, psycopg2'))[0] == 0;

my $node = new_cluster('http');
my $directory = temporary_directory();
my $source = 'test/clients/http';
$node->safe_psql('postgres', read_file("$source/schema.sql"));
# who finds a key in an open transaction is told so at once
$node->safe_psql('postgres', "ALTER ROLE shop SET idem.wait = '50ms'");

$ENV{SHOP_PRINCIPALS} = encode_json({ map { sha256_hex("$_-token") => [ 'acme', $_ ] } qw(alice bob) });
$ENV{SHOP_DATABASE} = 'host=' . $node->host . ' port=' . $node->port . ' user=shop dbname=postgres';

# ---- the two servers -------------------------------------------------------------

# until_true(WHAT, CODE): waits for a condition, which must come.
sub until_true
{
	my ($what, $condition) = @_;
	foreach (1 .. 1200)
	{
		return if $condition->();
		select undef, undef, undef, 0.05;
	}
	die "waited in vain: $what";
}

# start(NAME): a server of the example; its address is in {url}.  By its pid file
# test/run/lib.sh finds it, should this test be killed.
sub start
{
	my ($name) = @_;
	my $server = begin_program('sh', '-c',
		"echo \$\$ >$directory/$name.server.pid; exec $python -B $source/$name.py 2>>$directory/$name.log");
	eval {
		until_true("$name listens", sub {
			$server->{run}->pump_nb;
			return $server->{out} =~ /^listening on (\S+)/m && ($server->{url} = $1);
		});
		1;
	} or die "$@" . read_file("$directory/$name.log");
	return $server;
}

# what a proxy says is not what is tested
delete @ENV{ grep { /^(?:http|https|all)_proxy$/i } keys %ENV };
my $channel = start('channel');
$ENV{SHOP_CHANNEL} = $channel->{url};
my $shop;

sub open_shop
{
	my ($lease) = @_;
	local $ENV{SHOP_LEASE} = $lease;
	return $shop = start('shop');
}

sub kill_shop
{
	$shop->{run}->signal('KILL');
	end_program($shop);
	unlink "$directory/shop.server.pid";
	until_true('the database hears of it', sub {
		return $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE usename = 'shop'") eq '0';
	});
	return;
}

# ---- asking ------------------------------------------------------------------------

my $http = HTTP::Tiny->new(timeout => 60);

sub post
{
	my ($path, $key, $body, $who) = @_;
	my %headers = ('Content-Type' => 'application/json', 'Authorization' => 'Bearer ' . ($who || 'alice') . '-token');
	$headers{'Idempotency-Key'} = $key if defined $key;
	return $http->post($shop->{url} . $path, { headers => \%headers, content => encode('UTF-8', $body) });
}

# status_of(...): the same, the status alone
sub status_of
{
	return post(@_)->{status};
}

# begin_post(...): sends it and does not wait; hear(SOCKET) does.
sub begin_post
{
	my ($path, $key, $body) = @_;
	my ($host) = $shop->{url} =~ m{//(.*)};
	my $socket = IO::Socket::INET->new(PeerAddr => $host, Proto => 'tcp') or die "no connection to $host: $!";
	my $bytes = encode('UTF-8', $body);
	print $socket join("\r\n", "POST $path HTTP/1.0", 'Authorization: Bearer alice-token', "Idempotency-Key: $key",
		'Content-Type: application/json', 'Content-Length: ' . length($bytes), '', $bytes);
	$socket->flush;
	return $socket;
}

sub hear
{
	my ($socket) = @_;
	local $/;
	my ($head, $content) = split /\r\n\r\n/, (<$socket> // ''), 2;
	my ($status, @lines) = split /\r\n/, $head // '';
	my %headers = map { /^([^:]+): (.*)/ ? (lc $1 => $2) : () } @lines;
	return { status => ($status // '') =~ /^\S+ (\d+)/ ? $1 : 0, headers => \%headers, content => $content };
}

# What a repetition has to give again.
sub answer
{
	my ($response) = @_;
	return join "\n", $response->{status}, (map { $response->{headers}{$_} // '-' } qw(content-type location)), $response->{content};
}

sub is_replay
{
	my ($again, $first, $what) = @_;
	is(answer($again), answer($first), "$what: status, headers and bytes are the same");
	is($again->{headers}{'idempotent-replayed'}, 'true', "$what: and it says so");
	return;
}

sub retry_after { return $_[0]->{headers}{'retry-after'} // '-' }
sub payment { return encode_json({ order_id => $_[0], amount => $_[1] // 4900, currency => 'CNY' }) }
sub at_channel { return decode_json($http->get("$channel->{url}$_[0]")->{content}) }
sub sql { return $node->safe_psql('postgres', $_[0]) }
sub payments { return sql("SELECT count(*) FROM idem_payment WHERE order_id = '$_[0]'") }
sub payment_no { return sql("SELECT payment_no FROM idem_payment WHERE order_id = '$_[0]'") }
sub calls { return at_channel('/charges/' . payment_no($_[0]))->{calls} }
sub end_lease { return sql("UPDATE idem_request SET lease_until = clock_timestamp() WHERE key = '$_[0]'") }
sub request_row { return sql("SELECT status, recovery_point FROM idem_request WHERE key = '$_[0]'") }

# ---- what is not even begun --------------------------------------------------------

open_shop('1 hour');
my $tea = '{"order_id": "tea", "amount": 4900, "currency": "CNY", "item": "茶"}';
is(status_of('/orders', undef, $tea), 400, 'without the key: 400');
is(status_of('/orders', $_->[1], $tea), 400, "a key that is $_->[0]: 400")
  foreach ([ 'empty', '""' ], [ 'not closed', '"open' ], [ 'not opened', 'shut"' ], [ 'two words', 'two words' ],
	[ 'two keys', '"a", "b"' ], [ 'wrongly escaped', '"a\\b"' ], [ 'too long', '"' . 'k' x 256 . '"' ]);
is(hear(begin_post('/orders', "\xfc", $tea))->{status}, 400, 'or not ASCII: 400');
is(status_of('/orders', '"k"', '{"order_id": '), 400, 'a body that is no JSON: 400');
is(status_of('/orders', '"k"', '{"order_id": NaN}'), 400, 'or only half: 400');
is(status_of('/orders', '"k"', '[' x 50000), 400, 'or bottomless: 400');
is(status_of('/orders', '"k"', '"' . ' ' x 70000 . '"'), 413, 'too much of it: 413');
is(status_of('/orders', '"k"', $tea, 'mallory'), 401, 'from a stranger: 401');
is(sql('SELECT count(*) FROM idem_request'), '0', 'and nothing is left of them');

# ---- everything in one transaction -------------------------------------------------

my $first = post('/orders', '"tea-1"', $tea);
is($first->{status}, 201, 'an order is made');
like($first->{headers}{location}, qr{/orders/tea\z}, 'with a header that matters');
is($first->{headers}{'idempotent-replayed'}, undef, 'for the first time');
is_replay(post('/orders', '"tea-1"', $tea), $first, 'the same again');
is_replay(post('/orders', 'tea-1', $tea), $first, 'the key without quotes');
is_replay(post('/orders', '"tea-1"', '{"item":"\u8336", "currency":"CNY", "amount":49e2, "order_id":"tea"}'),
	$first, 'the same in other words');
my $conflict = post('/orders', '"tea-1"', $tea =~ s/4900/4901/r);
is("$conflict->{status} $conflict->{headers}{'content-type'}", '422 application/problem+json', 'another amount: 422');
is(decode_json($conflict->{content})->{detail}, 'The first field that differs is request.', 'and why');
is(status_of('/orders?dry=1', '"tea-1"', $tea), 422, 'another query: 422');
is(status_of('/payments', '"tea-1"', $tea), 422, 'another path: 422');
is(status_of('/orders', '"tea-1"', $tea =~ s/tea/milk/r, 'bob'), 201, "the same key of somebody else's is another");
my $long = '"\\"' . '\\\\' x 254 . '"';
$first = post('/orders', $long, $tea =~ s/tea/long/r);
is("$first->{status} " . sql('SELECT max(length(key)) FROM idem_request'), '201 255', 'a key of 255 characters, escapes and all');
is_replay(post('/orders', $long, $tea =~ s/tea/long/r), $first, 'and again');

is(status_of('/orders', '"oops"', $tea =~ s/4900/"much"/r), 400, 'what is not understood: 400');
is(status_of('/orders', '"oops"', $tea =~ s/4900/-1/r), 400, 'by the database either: 400');
is(status_of('/orders', '"oops"', $tea =~ s/tea/oops/r), 201, 'and its key is not used up');

sql('ALTER TABLE shop_item RENAME TO gone');
is(status_of('/orders', '"broken"', $tea =~ s/tea/broken/r), 500, 'an exception in the middle: 500');
is(sql("SELECT count(*) FROM idem_order WHERE order_id = 'broken'"), '0', 'no half of it stays');
sql('ALTER TABLE gone RENAME TO shop_item');
is(status_of('/orders', '"broken"', $tea =~ s/tea/broken/r), 201, 'and the same key does it');

my $session = open_session($node);
$session->ask("BEGIN; SELECT idem_begin_request('acme', 'http:alice', 'open')");
my $busy = post('/orders', '"open"', $tea =~ s/tea/open/r);
is("$busy->{status} " . retry_after($busy), '409 1', 'a key in an open transaction: 409, come again');
$session->ask('ROLLBACK');
$session->close;
is(status_of('/orders', '"open"', $tea =~ s/tea/open/r), 201, 'rolled back, it is free');
is(sql('SELECT count(*), count(DISTINCT order_id) FROM shop_item'), '6|6', 'as many orders as were made');

# ---- over several transactions -----------------------------------------------------

$first = post('/payments', '"pay-1"', payment('tea'));
is($first->{status}, 201, 'an order is paid');
is_replay(post('/payments', '"pay-1"', payment('tea')), $first, 'paid again');
is(calls('tea'), 1, 'the channel was called once');
is(sql("SELECT status FROM idem_order WHERE order_id = 'tea'"), 'paid', 'the order is paid');
is(status_of('/payments', '"pay-1"', payment('tea', 4901)), 422, 'another amount: 422');
my $refusal = post('/payments', '"pay-2"', payment('tea'));
is("$refusal->{status} $refusal->{content}", '409 {"error": "already_paid"}', 'another key for the same order: refused');
is_replay(post('/payments', '"pay-2"', payment('tea')), $refusal, 'refused again');

$first = post('/payments', '"declined"', payment('declined', 402));
is($first->{status}, 402, 'the channel declines: 402');
is_replay(post('/payments', '"declined"', payment('declined', 402)), $first, 'declined again');
is(calls('declined'), 1, 'without asking again');
is(sql("SELECT status FROM idem_payment WHERE order_id = 'declined'"), 'failed', 'the payment has failed');

my $later = post('/payments', '"later"', payment('later', 503));
is("$later->{status} " . retry_after($later), '503 1', 'the channel is out of order: 503, come again');
is(request_row('later'), 'started|submitted', 'the request is not given up');
is(status_of('/payments', '"later"', payment('later', 5030)), 422, 'nor its key');
is(status_of('/payments', '"later"', payment('later', 503)), 201, 'it is resumed at once, long before its lease would be over');
is(calls('later') . ' ' . payments('later'), '2 1', 'and asks the channel again, for the same payment');

sql("SELECT idem_disallow('shop', 'client', 'acme')");
is(status_of('/payments', '"rights"', payment('rights')), 500, 'without the right: 500');
sql("SELECT idem_allow('shop', 'client', 'acme')");
sql("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END'");
sql('CREATE TRIGGER refuse BEFORE INSERT ON idem_payment EXECUTE FUNCTION refuse()');
is(status_of('/payments', '"early"', payment('early')), 500, 'an exception before the first checkpoint: 500');
is(request_row('early'), 'released|', 'the key is free');
sql('DROP TRIGGER refuse ON idem_payment');
is(status_of('/payments', '"early"', payment('early')), 201, 'and does it');

$node->restart;
is(status_of('/payments', '"restart"', payment('restart')), 201, 'a database that was restarted is only another connection');

# ---- kill -9 -----------------------------------------------------------------------

# The request hangs where nobody can say how far it has come; the shop dies; it
# is opened again, and told once more.
sub crash_and_retry
{
	my ($path, $key, $body, $row) = @_;
	kill_shop();
	is(request_row($key), $row, "$key: killed where it hung");
	open_shop('1 hour');
	my $held = post($path, "\"$key\"", $body);
	is($held->{status}, 409, "$key: nobody goes on before its lease is over");
	cmp_ok(retry_after($held), '>', 3000, "$key: which is said");
	cmp_ok(retry_after($held), '<=', 3600, "$key: in seconds");
	is(status_of($path, "\"$key\"", $body =~ s/":\s*/":0, "x":/r), 422, "$key: another payload is told so first");
	end_lease($key);
	return post($path, "\"$key\"", $body);
}

$session = open_session($node);

# hang_at(TABLE, ...): a post that waits for a lock on the table.
sub hang_at
{
	my ($table, @post) = @_;
	$session->ask("BEGIN; LOCK TABLE $table IN EXCLUSIVE MODE");
	my $socket = begin_post(@post);
	until_true("a request waits for $table", sub {
		return sql("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '$table'::regclass") eq '1';
	});
	return $socket;
}

my $silent = begin_post('/payments', '"silent"', payment('silent', 504));
until_true('the channel is called', sub { return payment_no('silent') && calls('silent') == 1 });
my $resumed = crash_and_retry('/payments', 'silent', payment('silent', 504), 'started|submitted');
is($resumed->{status}, 201, 'silent: then it is resumed');
is($resumed->{headers}{'idempotent-replayed'}, undef, 'silent: which is no replay');
is(calls('silent'), 2, 'silent: the channel is asked again, for nobody knew its answer');
is(payments('silent'), 1, 'silent: for the same payment');
is_replay(post('/payments', '"silent"', payment('silent', 504)), $resumed, 'silent');
is(hear($silent)->{status}, 0, 'silent: who was connected hears nothing');

# The kill does not end a backend that waits for a lock: the lock is let go
# once the shop is dead.
sub crash_at
{
	my ($table, $key, $row) = @_;
	my $socket = hang_at($table, '/payments', "\"$key\"", payment($key));
	$shop->{run}->signal('KILL');
	hear($socket);
	$session->ask('COMMIT');
	return crash_and_retry('/payments', $key, payment($key), $row);
}

$resumed = crash_at('shop_delivery', 'charged', 'started|charged');
is($resumed->{status}, 201, 'charged: then it is resumed');
is(calls('charged'), 1, 'charged: and the channel is not asked again');
is(sql("SELECT count(*) FROM shop_delivery WHERE order_id = 'charged'"), '1', 'charged: one delivery');

$resumed = crash_at('idem_payment', 'begun', 'started|');
is($resumed->{status}, 201, 'begun: then it starts from the beginning');
is(calls('begun') . ' ' . payments('begun'), '1 1', 'begun: with one payment, charged once');

# a lease that runs out by itself
kill_shop();
open_shop('2 seconds');
my $slow = hang_at('shop_delivery', '/payments', '"slow"', payment('slow'));
$shop->{run}->signal('KILL');
hear($slow);
$session->ask('COMMIT');
kill_shop();
my $over = sql("SELECT lease_until FROM idem_request WHERE key = 'slow'");
open_shop('1 hour');
my $response;
until_true('the lease is over', sub { return ($response = post('/payments', '"slow"', payment('slow')))->{status} != 409 });
is("$response->{status} " . sql("SELECT clock_timestamp() >= '$over'"), '201 t', 'slow: it is resumed when its lease is over, not before');
is(calls('slow'), 1, 'slow: the channel is not asked again');

# ---- an attempt that was overtaken and wakes up -------------------------------------

my $sleeper = hang_at('shop_delivery', '/payments', '"sleeper"', payment('sleeper'));
sql("UPDATE idem_request SET attempt = nextval('idem_attempt') WHERE key = 'sleeper'");
$session->ask('COMMIT');
$response = hear($sleeper);
is("$response->{status} " . retry_after($response), '409 1', 'who was overtaken has nothing to say');
is(sql("SELECT count(*) FROM shop_delivery WHERE order_id = 'sleeper'"), '0', 'and has done nothing');
is(request_row('sleeper'), 'started|charged', 'nor given back what is no longer his');
end_lease('sleeper');
is(status_of('/payments', '"sleeper"', payment('sleeper')), 201, 'the next one does it');
$session->close;

# ---- what nobody can know ------------------------------------------------------------

my $goodbye = '{"text": "goodbye"}';
begin_post('/messages', '"bye"', $goodbye);
until_true('it is sent', sub { return @{ at_channel('/messages')->{texts} } == 1 });
$response = crash_and_retry('/messages', 'bye', $goodbye, 'started|sending');
is("$response->{status} " . retry_after($response), '409 -', 'bye: nobody knows, and asking again soon does not help');
like($response->{content}, qr/not known/, 'bye: which is said');
is(scalar @{ at_channel('/messages')->{texts} }, 1, 'bye: it is not sent again');
is(sql(<<'SQL'), 'resolved', 'bye: somebody finds out');
SELECT outcome FROM idem_resolve_request('acme', 'http:alice', 'bye', 'completed',
	'{"headers": {"Content-Type": "application/json"}, "body": "{\"sent\": \"goodbye\"}"}', 201)
SQL
$response = post('/messages', '"bye"', $goodbye);
is("$response->{status} $response->{content}", '201 {"sent": "goodbye"}', 'bye: and it is answered');
is(status_of('/messages', '"hello"', '{"text": "hello"}'), 201, 'what does not die is simply sent');

# ---- 32 at once -----------------------------------------------------------------------

sub burst
{
	my ($order, @keys) = @_;
	return map { hear($_) } map { begin_post('/payments', $_, payment($order)) } @keys;
}

my @answers = burst('burst', ('"burst"') x 32);
is(join(' ', sort { $a <=> $b } uniq map { $_->{status} } grep { $_->{status} != 409 } @answers), '201', '32 identical requests at once: 201');
is(scalar(grep { $_->{status} == 409 && retry_after($_) !~ /^[1-9]\d*$/ } @answers), 0, 'or 409, come again');
$first = post('/payments', '"burst"', payment('burst'));
is(join('|', uniq map { $_->{content} } $first, grep { $_->{status} == 201 } @answers), $first->{content}, 'one answer to all');
is(calls('burst') . ' ' . payments('burst'), '1 1', 'one payment, charged once');

@answers = burst('tabs', map { "\"tab-$_\"" } 1 .. 32);
is(join(' ', grep { !/^(?:201|409)$/ } uniq map { $_->{status} } @answers), '', '32 requests for one order, each with its own key: 201 or 409');
is(join('|', uniq map { $_->{content} } grep { $_->{status} == 201 } @answers),
	'{"payment_no": "' . payment_no('tabs') . '", "status": "paid"}', 'they lead to one payment');
is(sql("SELECT count(*) FROM idem_receipt r JOIN idem_payment p USING (tenant_id, payment_no) WHERE p.order_id = 'tabs'"),
	'1', 'which is charged once, however often the channel is asked');

# ---- the books --------------------------------------------------------------------------

is(sql("SELECT count(*) FROM idem_payment WHERE status = 'paid'"), sql('SELECT count(*) FROM shop_delivery'), 'what is paid is delivered');
is(sql("SELECT count(*) FROM idem_request WHERE status = 'started'"), '0', 'no request is left in the middle');
is(sql('SELECT count(*) FROM idem_anomaly'), '0', 'nothing is strange');
verify_is_empty($node, 'after all that');
kill_shop();
$channel->{run}->signal('KILL');
end_program($channel);
$node->stop;
done_testing();
