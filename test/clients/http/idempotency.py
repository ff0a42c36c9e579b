"""
Idempotency-Key for Flask; what became of a key is kept by idem.

A client that hears no answer sends its request again, and nobody here knows whether the first one ever
arrived, is still at work in another process, or died in the middle.  The database knows.  So a view is
called only for the one attempt that idem_begin_request() lets work, and no answer leaves before the
transaction that keeps it is committed.  Decorate a view with one of two shapes:

    @idempotency.one_transaction
    def view(attempt, db): ...

        Begin, work and answer are one transaction.  For work that is all in this database: a crash or an
        exception leaves nothing behind, the key included.

    @idempotency.several_transactions()
    def view(attempt): ...

        For work that calls somebody else, which no transaction should wait for and no rollback undoes.  The
        view opens transactions of its own, and notes with attempt.checkpoint() how far it has come, in the
        transaction that stores what it has got; the first time before it calls anybody.  If it dies, the
        client's next try gets attempt.recovery_point and attempt.state once the lease is over.

Both end with attempt.complete() or, if trying again cannot help, attempt.fail(): that answer is given
to every repetition.  Any exception means that trying again may help, and is not kept.
"""

import functools
import json
import logging
import re
import uuid
from collections import namedtuple
from urllib.parse import quote

import psycopg2
from flask import Response, request
from psycopg2.extras import Json
from werkzeug.exceptions import HTTPException

log = logging.getLogger(__name__)

# Who is asking, as the application has made sure
Principal = namedtuple('Principal', 'tenant_id name')

BEGIN = """
SELECT outcome, attempt, recovery_point, recovery_state, response_status, response,
       greatest(1, ceil(extract(epoch FROM lease_until - clock_timestamp())))::int AS retry_after
FROM idem_begin_request(%s, %s, %s, jsonb_build_object('method', %s::text, 'path', %s::text, 'query', %s::text, 'body', %s::jsonb),
                        lease => %s, ttl => %s, worker => %s, on_expiry => %s)"""

CHECKPOINT = 'SELECT outcome FROM idem_checkpoint_request(%s, %s, %s, %s, %s, %s)'
COMPLETE = 'SELECT outcome FROM idem_complete_request(%s, %s, %s, %s, %s, %s)'
FAIL = 'SELECT outcome FROM idem_fail_request(%s, %s, %s, %s, %s, %s, retryable => false)'
RELEASE = 'SELECT outcome FROM idem_fail_request(%s, %s, %s, %s)'
RENEW = 'SELECT outcome FROM idem_renew_request(%s, %s, %s, %s, %s)'


class Problem(Exception):
    """An answer that is not kept: a repetition of the request is looked at anew."""

    def __init__(self, status, title, detail=None, retry_after=None):
        super().__init__(title)
        self.status, self.title, self.detail, self.retry_after = status, title, detail, retry_after

    def response(self):
        body = {'status': self.status, 'title': self.title}
        headers = {'Content-Type': 'application/problem+json'}
        if self.detail is not None:
            body['detail'] = self.detail
        if self.retry_after is not None:
            headers['Retry-After'] = str(self.retry_after)
        return Response(json.dumps(body), self.status, headers)


def problem_of(error):
    """What a client is told of an exception; only what it can do something about."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException):
        return Problem(error.code, error.name)
    if isinstance(error, psycopg2.Error):
        sqlstate = error.pgcode or ''
        if sqlstate == 'ID001':
            return Problem(422, 'An earlier request asked for something else', error.diag.message_detail)
        if sqlstate == 'ID005':
            return Problem(409, 'The request was taken over by a repetition', retry_after=1)
        if sqlstate.startswith('22'):
            return Problem(400, 'The request is not understood')
        log.exception('the database refused')
        # no connection, a conflict with another transaction, a lack of resources, a cancelled statement
        if sqlstate[:2] in ('', '08', '40', '53', '55', '57'):
            return Problem(503, 'Not possible at the moment', retry_after=1)
        return Problem(500, 'Internal error')
    log.exception('a view failed')
    return Problem(500, 'Internal error')


# ---------- what was asked for ----------

# A String of RFC 9651; and the unquoted tokens that most clients send
QUOTED_KEY = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
BARE_KEY = re.compile(r'[0-9A-Za-z._~:+/=-]+')


def key_of(header):
    """The key in an Idempotency-Key header: "abc" and abc are the same."""
    if header is None:
        raise Problem(400, 'Idempotency-Key is missing')
    header = header.strip(' \t')
    quoted = QUOTED_KEY.fullmatch(header)
    if not quoted and not BARE_KEY.fullmatch(header):
        raise Problem(400, 'Idempotency-Key is malformed', 'It is a string in double quotes.')
    key = re.sub(r'\\(.)', r'\1', quoted.group(1)) if quoted else header
    if not 1 <= len(key) <= 255:
        raise Problem(400, 'Idempotency-Key is malformed', 'It has 1 to 255 characters.')
    return key


def json_body():
    """The body as text, for the database to compare, and as an object, for the view."""
    if (request.content_length or 0) > (request.max_content_length or float('inf')):
        raise Problem(413, 'The body is too large')
    try:
        text = request.get_data().decode('utf-8') or 'null'
        return text, json.loads(text)
    except (ValueError, RecursionError):
        raise Problem(400, 'The body is not JSON') from None


# ---------- an attempt to answer it ----------

class Attempt:
    """One try at a request: who asks for what, and, once it has begun, how far earlier tries have come."""

    def __init__(self, principal, lease, ttl, on_expiry):
        if principal is None:
            raise Problem(401, 'Who are you?')
        self.tenant_id = principal.tenant_id
        # a key is its owner's: nobody else can use it up, or read what was answered
        self.scope = 'http:' + principal.name
        self.key = key_of(request.headers.get('Idempotency-Key'))
        self.text, self.body = json_body()
        # should the answer to begin get lost, the next begin of this name goes on
        self.worker = str(uuid.uuid4())
        self.spans = lease, ttl
        self.on_expiry = on_expiry
        self.number = self.recovery_point = self.state = None
        self.ended = False

    def begin(self, db):
        """None: go to work.  Else what was answered before."""
        begun = db.row(BEGIN, self.tenant_id, self.scope, self.key,
                       request.method, quote(request.path), quote(request.query_string), self.text,
                       *self.spans, self.worker, self.on_expiry)
        if begun.outcome == 'replayed':
            return Response(begun.response['body'], begun.response_status,
                            {**begun.response['headers'], 'Idempotent-Replayed': 'true'})
        if begun.outcome == 'in_progress':
            raise Problem(409, 'The request is in progress', retry_after=begun.retry_after)
        if begun.outcome == 'unknown':
            raise Problem(409, 'It is not known whether the request was carried out',
                          'It is being found out. Repeat the request later to learn the answer.')
        self.number, self.recovery_point, self.state = begun.attempt, begun.recovery_point, begun.recovery_state
        return None

    def checkpoint(self, db, recovery_point, state=None):
        """Notes how far the attempt has come, in the transaction that stores what it has got."""
        self._say(db, CHECKPOINT, 'checkpointed', recovery_point, Json(state))
        # should the commit fail, this errs on the side of having come further
        self.recovery_point, self.state = recovery_point, state

    def complete(self, db, status, body, headers=None):
        """The answer to this request and all its repetitions.  Return it once the transaction is committed."""
        return self._end(db, COMPLETE, 'completed', status, body, headers)

    def fail(self, db, status, body, headers=None):
        """The same for a refusal that trying again would not change."""
        return self._end(db, FAIL, 'failed', status, body, headers)

    def give_back(self, database):
        """
        Lets the next try begin now.  An attempt that has noted nothing has called nobody: its key is free.
        Else the next one resumes where this one was, so the lease is ended but the key kept.
        """
        try:
            with database.transaction() as db:
                if self.recovery_point is None:
                    self._say(db, RELEASE, 'released')
                else:
                    self._say(db, RENEW, 'renewed', '1 millisecond')
        except (psycopg2.Error, Problem) as error:
            log.warning('request %s is not given back, its lease has to run out: %s', self.key, error)

    def _end(self, db, sql, outcome, status, body, headers):
        headers = {'Content-Type': 'application/json', **(headers or {})}
        text = json.dumps(body, ensure_ascii=False)
        self._say(db, sql, outcome, Json({'headers': headers, 'body': text}), status)
        self.ended = True
        return Response(text, status, headers)

    def _say(self, db, sql, outcome, *args):
        said = db.row(sql, self.tenant_id, self.scope, self.key, self.number, *args).outcome
        if said not in (outcome, 'duplicate'):
            # refused: somebody has decided otherwise; in_progress: somebody is about to.  Roll back.
            raise Problem(409, 'The request is being decided elsewhere', said, retry_after=1)


# ---------- the two shapes ----------

class Idempotency:
    """
    authenticate: called in each request, returns a Principal or None.  lease: longer than the slowest
    step of a view, calls included.  ttl: how long answers are repeated; tell clients.
    """

    def __init__(self, database, authenticate, lease='30 seconds', ttl='24 hours'):
        self.database = database
        self._attempt = lambda on_expiry: Attempt(authenticate(), lease, ttl, on_expiry)

    def one_transaction(self, view):
        def serve(**path):
            attempt = self._attempt('resume')
            with self.database.transaction() as db:
                return attempt.begin(db) or _ended(attempt, view(attempt, db, **path))

        return _answering(view, serve)

    def several_transactions(self, on_expiry='resume'):
        """on_expiry: unknown, for a view that must not run again when nobody knows how far it came."""
        def decorate(view):
            def serve(**path):
                attempt = self._attempt(on_expiry)
                answered = self._begin_and_commit(attempt)
                if answered:
                    return answered
                try:
                    return _ended(attempt, view(attempt, **path))
                except Exception:
                    attempt.give_back(self.database)
                    raise

            return _answering(view, serve)

        return decorate

    def _begin_and_commit(self, attempt):
        for tries_left in (1, 0):
            try:
                with self.database.transaction() as db:
                    return attempt.begin(db)
            except (psycopg2.OperationalError, psycopg2.InterfaceError):
                # perhaps it was committed and only the answer is lost; then the same worker goes on
                if not tries_left:
                    raise


def _ended(attempt, response):
    if not attempt.ended:
        raise RuntimeError('a view returned without complete() or fail()')
    return response


def _answering(view, serve):
    """The view for Flask: serve(), and an answer also to what goes wrong."""
    @functools.wraps(view)
    def answer(**path):
        try:
            return serve(**path)
        except Exception as error:
            return problem_of(error).response()

    return answer
