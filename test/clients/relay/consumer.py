#!/usr/bin/env python3
"""Act on messages from RabbitMQ, each of them once.

    consumer.py QUEUE CONSUMER

Database and broker come from the environment, as for relay.py.  The effect here is
a row in the table `ledger` (key, turn); a real consumer has its own in act().

The message is noted in the inbox and acted upon in one transaction, and the
broker is told only when that is committed.  A message that comes again finds
the note.  The queue has one active consumer at a time and is read one message
at a time, so that the order of the relay is kept.
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


def connect():
    return pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))


def act(cursor, key, body):
    cursor.execute("INSERT INTO ledger (key, turn) VALUES (%s, %s)", (key, body["turn"]))


def handle(database, consumer, method, properties, body):
    """Returns whether the broker may forget the message."""
    with database, database.cursor() as cursor:
        cursor.execute("SELECT outcome FROM idem_accept_message(%s, %s, %s)",
                       (properties.headers["tenant_id"], consumer, properties.message_id))
        outcome = cursor.fetchone()[0]
        if outcome == "accepted":
            act(cursor, method.routing_key.split(".", 1)[1], json.loads(body))
    return outcome in ("accepted", "duplicate")


def run(queue, consumer):
    """Consume until the database or the broker goes away.

    Both connections are closed then: one left open to the broker would keep the
    message in hand, and the queue's turn, from everybody else.
    """
    exchange = os.environ.get("EXCHANGE", "idem")
    with closing(psycopg2.connect("")) as database, closing(connect()) as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange, "topic", durable=True)
        channel.queue_declare(queue, durable=True, arguments={"x-single-active-consumer": True})
        channel.queue_bind(queue, exchange, "#")
        channel.basic_qos(prefetch_count=1)
        for method, properties, body in channel.consume(queue):
            if handle(database, consumer, method, properties, body):
                channel.basic_ack(method.delivery_tag)
            else:
                channel.basic_nack(method.delivery_tag, requeue=True)


def main():
    queue, consumer = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        try:
            run(queue, consumer)
        except (psycopg2.Error, pika.exceptions.AMQPError, OSError) as error:
            print(f"{consumer}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
