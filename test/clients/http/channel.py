"""
The outside world of the example: a payment channel.  As channels do, it knows a charge by the caller's
payment_no and makes it once however often it is asked; and as their sandboxes do, it goes wrong by amount.

    POST /charges {"payment_no", "amount", "currency"}  201 or 200 {"trade_no"}; 402: declined
    GET  /charges/<payment_no>                          {"calls", "trade_no"}
    POST /messages {"text"}                             201; sends it again each time it is asked
    GET  /messages                                      {"texts"}
"""

import collections
import threading

from flask import Flask, jsonify, request
from werkzeug.serving import make_server

DECLINED = 402
FAILS_ONCE = 503                # before it charges
SILENT_ONCE = 504               # charges, and does not answer
GOODBYE = 'goodbye'             # a text that is sent, and not answered


def create_app():
    app = Flask(__name__)
    lock = threading.Lock()
    calls = collections.Counter()
    trades = {}
    texts = []

    def never_answer():
        threading.Event().wait(600)

    @app.route('/charges', methods=['POST'])
    def charge():
        asked = request.get_json()
        number, amount = asked['payment_no'], asked['amount']
        with lock:
            calls[number] += 1
            first = calls[number] == 1
            if amount == DECLINED:
                return jsonify(error='declined'), 402
            if amount == FAILS_ONCE and first:
                return jsonify(error='try again'), 503
            known = number in trades
            trade_no = trades.setdefault(number, f'trade-{len(trades) + 1}')
        if amount == SILENT_ONCE and first:
            never_answer()
        return jsonify(trade_no=trade_no), 200 if known else 201

    @app.route('/charges/<number>')
    def charged(number):
        return jsonify(calls=calls[number], trade_no=trades.get(number))

    @app.route('/messages', methods=['GET', 'POST'])
    def messages():
        if request.method == 'POST':
            texts.append(request.get_json()['text'])
            if texts[-1] == GOODBYE:
                never_answer()
            return jsonify(), 201
        return jsonify(texts=texts)

    return app


if __name__ == '__main__':
    server = make_server('127.0.0.1', 0, create_app(), threaded=True)
    print(f'listening on http://127.0.0.1:{server.server_port}', flush=True)
    server.serve_forever()
