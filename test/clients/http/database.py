"""Transactions on pooled connections."""

import contextlib
import queue

import psycopg2
from psycopg2.extras import NamedTupleCursor


class Cursor(NamedTupleCursor):
    """A cursor for functions that answer with one row."""

    def row(self, sql, *args):
        self.execute(sql, args)
        return self.fetchone()


class Database:
    """
    A connection is taken for one transaction and given back with its end, so that none waits for a
    channel or a client.  Nothing is expected of a session: behind PgBouncer in transaction mode, where
    each transaction may meet another server connection, all of this works the same.
    """

    def __init__(self, dsn, connections=8, patience_s=5):
        self._dsn = dsn
        self._patience_s = patience_s
        self._places = queue.LifoQueue()
        for _ in range(connections):
            self._places.put(None)

    @contextlib.contextmanager
    def transaction(self):
        """with database.transaction() as db: commits at the end, rolls back on any exception."""
        try:
            connection = self._places.get(timeout=self._patience_s)
        except queue.Empty:
            raise psycopg2.OperationalError('all connections are in use') from None
        try:
            if connection is None or connection.closed:
                connection = psycopg2.connect(self._dsn, cursor_factory=Cursor)
            with connection, connection.cursor() as db:
                yield db
        finally:
            self._places.put(connection)
