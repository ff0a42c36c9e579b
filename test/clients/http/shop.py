"""
A shop that takes payments: how idempotency.py is used.

    SHOP_DATABASE    how to connect, e.g. "dbname=shop user=shop"
    SHOP_CHANNEL     where channel.py listens, e.g. http://127.0.0.1:8001
    SHOP_PRINCIPALS  {"<SHA-256 of a bearer token, hexadecimal>": ["<tenant>", "<name>"], ...}
    SHOP_LEASE       how long a request stays with a process that may have died

POST /orders is all in the database.  POST /payments charges somebody else's money on the way.
POST /messages asks somebody who would do it again each time he is asked.
"""

import hashlib
import json
import logging
import os
import urllib.error
import urllib.request

from flask import Flask, request
from werkzeug.serving import make_server

from database import Database
from idempotency import Idempotency, Principal, Problem

CREATE_ORDER = 'SELECT outcome, status FROM idem_create_order(%s, %s, %s, %s)'
CREATE_PAYMENT = """
SELECT outcome, payment_no, status FROM idem_create_payment(%s, %s, %s, %s, request_key => idem_key('POST /payments', %s, %s), channel => 'example')"""
SUBMIT_PAYMENT = "SELECT outcome FROM idem_submit_payment(%s, %s, 'example')"
CONFIRM_PAYMENT = "SELECT outcome, status FROM idem_confirm_payment(%s, %s, 'example', %s, %s, %s)"
FAIL_PAYMENT = "SELECT outcome FROM idem_fail_payment(%s, %s, 'declined')"
ADD_ITEM = 'INSERT INTO shop_item VALUES (%s, %s, %s) ON CONFLICT DO NOTHING'
ADD_DELIVERY = 'INSERT INTO shop_delivery VALUES (%s, %s, %s) ON CONFLICT DO NOTHING'

CHANNEL_TIMEOUT_S = 10          # well below the lease


class Channel:
    def __init__(self, url):
        self._url = url

    def post(self, path, **asked):
        """(status, answer), None for one that was declined.  Anything else decides nothing: the next try asks again."""
        call = urllib.request.Request(self._url + path, json.dumps(asked).encode(), {'Content-Type': 'application/json'})
        try:
            with urllib.request.urlopen(call, timeout=CHANNEL_TIMEOUT_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            if refused.code == 402:
                return refused.code, None
            raise Problem(503, 'The channel is out of order', retry_after=1) from refused
        except OSError as lost:
            raise Problem(503, 'The channel does not answer', retry_after=1) from lost


def asked_for(body, **types):
    """The named fields of the body; what is not understood does not use up the key."""
    for name, wanted in types.items():
        if not isinstance(body, dict) or type(body.get(name)) is not wanted:
            raise Problem(400, 'The request is not understood', f'{name} is missing or not of type {wanted.__name__}.')
    return [body[name] for name in types]


def create_app(database, channel, principals, lease):
    app = Flask(__name__)
    app.config['MAX_CONTENT_LENGTH'] = 64 * 1024

    def authenticate():
        scheme, _, token = request.headers.get('Authorization', '').partition(' ')
        if scheme.lower() == 'bearer':
            return principals.get(hashlib.sha256(token.encode()).hexdigest())

    idempotency = Idempotency(database, authenticate, lease)

    @app.route('/orders', methods=['POST'])
    @idempotency.one_transaction
    def order(attempt, db):
        order_id, amount, currency, item = asked_for(attempt.body, order_id=str, amount=int, currency=str, item=str)
        created = db.row(CREATE_ORDER, attempt.tenant_id, order_id, amount, currency)
        if created.outcome == 'in_progress':
            raise Problem(409, 'The order is in progress', retry_after=1)
        db.execute(ADD_ITEM, (attempt.tenant_id, order_id, item))
        return attempt.complete(db, 201, {'order_id': order_id, 'status': created.status}, {'Location': f'/orders/{order_id}'})

    @app.route('/payments', methods=['POST'])
    @idempotency.several_transactions()
    def pay(attempt):
        order_id, amount, currency = asked_for(attempt.body, order_id=str, amount=int, currency=str)

        if attempt.recovery_point is None:
            with database.transaction() as db:
                payment = db.row(CREATE_PAYMENT, attempt.tenant_id, order_id, amount, currency, attempt.scope, attempt.key)
                if payment.outcome in ('already_paid', 'order_closed') or payment.status == 'paid':
                    return attempt.fail(db, 409, {'error': payment.outcome})
                if payment.payment_no is None:
                    # closing, in_review, ...: may be over the next time
                    raise Problem(409, 'The order cannot be paid now', payment.outcome, retry_after=5)
                if db.row(SUBMIT_PAYMENT, attempt.tenant_id, payment.payment_no).outcome not in ('submitted', 'already_submitted'):
                    raise Problem(409, 'The order cannot be paid now', retry_after=5)
                attempt.checkpoint(db, 'submitted', {'payment_no': payment.payment_no})

        payment_no = attempt.state['payment_no']
        if attempt.recovery_point == 'submitted':
            # asked again for the same payment_no the channel charges nothing again
            status, charge = channel.post('/charges', payment_no=payment_no, amount=amount, currency=currency)
            with database.transaction() as db:
                if charge is None:
                    db.row(FAIL_PAYMENT, attempt.tenant_id, payment_no)
                    return attempt.fail(db, status, {'error': 'declined', 'payment_no': payment_no})
                # money has moved: this is committed before anything else can go wrong
                confirmed = db.row(CONFIRM_PAYMENT, attempt.tenant_id, payment_no, charge['trade_no'], amount, currency)
                if confirmed.status != 'paid':
                    return attempt.fail(db, 409, {'error': confirmed.outcome, 'payment_no': payment_no})
                attempt.checkpoint(db, 'charged', {'payment_no': payment_no})

        with database.transaction() as db:
            db.execute(ADD_DELIVERY, (attempt.tenant_id, payment_no, order_id))
            return attempt.complete(db, 201, {'payment_no': payment_no, 'status': 'paid'}, {'Location': f'/payments/{payment_no}'})

    @app.route('/messages', methods=['POST'])
    @idempotency.several_transactions(on_expiry='unknown')
    def send(attempt):
        [text] = asked_for(attempt.body, text=str)
        with database.transaction() as db:
            attempt.checkpoint(db, 'sending')
        channel.post('/messages', text=text)
        with database.transaction() as db:
            return attempt.complete(db, 201, {'sent': text})

    return app


def main():
    logging.basicConfig()
    principals = {digest: Principal(*who) for digest, who in json.loads(os.environ['SHOP_PRINCIPALS']).items()}
    app = create_app(Database(os.environ['SHOP_DATABASE']), Channel(os.environ['SHOP_CHANNEL']), principals,
                     os.environ.get('SHOP_LEASE', '30 seconds'))
    # in production: whatever WSGI server you run
    server = make_server('127.0.0.1', int(os.environ.get('SHOP_PORT', '0')), app, threaded=True)
    print(f'listening on http://127.0.0.1:{server.server_port}', flush=True)
    server.serve_forever()


if __name__ == '__main__':
    main()
