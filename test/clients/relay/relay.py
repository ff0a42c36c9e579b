#!/usr/bin/env python3
"""Bring the events of a subscription to RabbitMQ.

    relay.py SUBSCRIPTION WORKER

Database and broker come from the environment: PGHOST, PGPORT, PGDATABASE, ... as
for psql, and AMQP_URL.  The exchange is EXCHANGE (idem), the routing key
aggregatetype.aggregateid; the message's id is the event's, which is what a
consumer's inbox goes by.

Fetch and commit; publish, and wait until the broker has taken each message;
acknowledge and commit.  Whatever dies in between, the batch is handed out again
when its lease is over, and the broker gets some messages twice.  Any number of
relays may run for one subscription: a key is with one of them at a time.
"""
import json
import os
import signal
import sys
import time
from contextlib import closing

import pika
import psycopg2

LEASE = os.environ.get("LEASE", "15 seconds")
BATCH = 200
PAUSE_S = 0.5                   # after an error, of the database or the broker

stopping = False


def stop(*_):
    global stopping
    stopping = True


class Broker:
    """A channel that confirms what it has taken."""

    def __init__(self):
        self.exchange = os.environ.get("EXCHANGE", "idem")
        self.connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
        self.channel = self.connection.channel()
        self.channel.exchange_declare(self.exchange, "topic", durable=True)
        self.channel.confirm_delivery()

    def close(self):
        if self.connection.is_open:
            self.connection.close()

    def publish(self, event):
        """Returns once the message is safe with the broker; raises if it was refused."""
        self.channel.basic_publish(
            self.exchange,
            f"{event['aggregatetype']}.{event['aggregateid']}",
            json.dumps(event["payload"], ensure_ascii=False).encode(),
            pika.BasicProperties(
                message_id=event["id"],
                type=event["type"],
                content_type="application/json",
                delivery_mode=2,
                headers={"tenant_id": event["tenant_id"], "attempt": event["attempt"]}),
            mandatory=True)


def fetch(cursor, subscription, worker):
    cursor.execute(
        "SELECT batch, id::text AS id, tenant_id, aggregatetype, aggregateid, type, payload, attempt"
        " FROM idem_fetch_events(%s, %s, %s, %s)", (subscription, worker, BATCH, LEASE))
    names = [column.name for column in cursor.description]
    return [dict(zip(names, row)) for row in cursor.fetchall()]


class Busy(Exception):
    """An open transaction stands in the way, and did not end within idem.wait."""


def say(cursor, statement, arguments):
    """What became of the batch or of an event in it; nothing, if somebody is at it."""
    cursor.execute(statement, arguments)
    if cursor.fetchone()[0] == "in_progress":
        raise Busy(statement)


def relay_batch(cursor, broker, subscription, events):
    """Publish in order.  A message that the broker refuses holds up its own key only."""
    failed = set()
    for event in events:
        key = (event["tenant_id"], event["aggregatetype"], event["aggregateid"])
        if key in failed:
            continue
        try:
            broker.publish(event)
        except (pika.exceptions.UnroutableError, pika.exceptions.NackError) as error:
            failed.add(key)
            say(cursor, "SELECT outcome FROM idem_retry_event(%s, %s, %s, %s)",
                (subscription, event["batch"], event["id"], str(error)))
    say(cursor, "SELECT outcome FROM idem_ack_events(%s, %s)", (subscription, events[0]["batch"]))


def run(subscription, worker):
    """Relay until told to stop, or until the database or the broker goes away."""
    with closing(psycopg2.connect("")) as database, closing(Broker()) as broker:
        database.autocommit = True
        cursor = database.cursor()
        while not stopping:
            events = fetch(cursor, subscription, worker)
            if events:
                relay_batch(cursor, broker, subscription, events)
            else:
                broker.connection.process_data_events()     # heartbeats
                cursor.execute("CALL idem_wait_events(%s, '1 s')", (subscription,))


def main():
    if int(pika.__version__.split(".")[0]) < 1:
        sys.exit("pika 1.0 or later is needed: before, nothing is raised when the broker refuses a message")
    subscription, worker = sys.argv[1:]
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    while not stopping:
        try:
            run(subscription, worker)
        except (Busy, psycopg2.Error, pika.exceptions.AMQPError, OSError) as error:
            # what was handed out comes again when its lease is over
            print(f"{worker}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
