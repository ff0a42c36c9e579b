#!/usr/bin/env python3
"""Act on messages from RabbitMQ, each of them once and in order.

    consumer.py STREAM CONSUMER

Database and broker come from the environment, as for relay.py.  The effect here is
a row in the table `ledger` (key, turn); a real consumer has its own in act().

The message is noted in the inbox and acted upon in one transaction, and so is its
offset in the table `place` (consumer, reached), where the next start goes on.  A
message that comes again finds the note.

The order of the relay is kept because a stream gives its messages to each of its
readers, one after the other.  A queue gives them to one reader, and what that one
had in hand when it died may come after the message behind it, also with a single
active consumer.  So several consumers of one name may run: each reads everything,
whoever is first acts, and the others wait for what becomes of it.
"""
import json
import os
import signal
import sys
import time
from contextlib import closing

import pika
import psycopg2

PAUSE_S = 0.5
PREFETCH = 100

# Less than idem.inbox_retention: what was forgotten must not come again.
STREAM = {"x-queue-type": "stream", "x-max-age": "7D"}


def connect():
    return pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))


def act(cursor, key, body):
    cursor.execute("INSERT INTO ledger (key, turn) VALUES (%s, %s)", (key, body["turn"]))


def next_place(database, consumer):
    """Where in the stream to go on."""
    with database, database.cursor() as cursor:
        cursor.execute("SELECT reached + 1 FROM place WHERE consumer = %s", (consumer,))
        row = cursor.fetchone()
    return row[0] if row else "first"


def remember_place(cursor, consumer, offset):
    cursor.execute("INSERT INTO place (consumer, reached) VALUES (%s, %s)"
                   " ON CONFLICT (consumer) DO UPDATE SET reached = excluded.reached",
                   (consumer, offset))


def handle(database, consumer, method, properties, body):
    """Returns whether the message is done with: acted upon now, or before."""
    with database, database.cursor() as cursor:
        cursor.execute("SELECT outcome FROM idem_accept_message(%s, %s, %s)",
                       (properties.headers["tenant_id"], consumer, properties.message_id))
        outcome = cursor.fetchone()[0]
        if outcome == "accepted":
            act(cursor, method.routing_key.split(".", 1)[1], json.loads(body))
            remember_place(cursor, consumer, properties.headers["x-stream-offset"])
    return outcome in ("accepted", "duplicate")


def run(stream, consumer):
    """Consume until the database or the broker goes away."""
    exchange = os.environ.get("EXCHANGE", "idem")
    with closing(psycopg2.connect("")) as database, closing(connect()) as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange, "topic", durable=True)
        channel.queue_declare(stream, durable=True, arguments=STREAM)
        channel.queue_bind(stream, exchange, "#")
        channel.basic_qos(prefetch_count=PREFETCH)
        begin = {"x-stream-offset": next_place(database, consumer)}
        for method, properties, body in channel.consume(stream, arguments=begin):
            while not handle(database, consumer, method, properties, body):
                pass                            # somebody is at it, and the call has waited for him
            channel.basic_ack(method.delivery_tag)      # makes room for the next one, no more


def main():
    stream, consumer = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        try:
            run(stream, consumer)
        except (psycopg2.Error, pika.exceptions.AMQPError, OSError) as error:
            print(f"{consumer}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
