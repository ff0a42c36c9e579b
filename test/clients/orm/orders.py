"""
Orders in four steps, 待支付, 已支付, 已发货, 已完成, through SQLAlchemy.

The table is the shop's own (schema.sql).  Which moves are legal stands in the database and is held against
everybody who writes there, so nothing here repeats it.  There are two ways to move an order:

    move()          names the event, and is told what came of it: moved; duplicate, it was there already;
                    illegal from where it is; stale; not_found.  None of them is an exception.
    order.state =   as with any mapped attribute.  The guard refuses an illegal move when it is flushed, and
                    the version, which guard and mapping count alike, tells when another session was faster.

    export ORDERS_DATABASE='dbname=shop user=shop'
    orders.py place NO AMOUNT | show NO
    orders.py pay NO | ship NO | complete NO [VERSION]      by event
    orders.py set NO STATE | set_all STATE                  by attribute; all orders, as the ORM does it in bulk
"""

import os
import sys

import psycopg2
from sqlalchemy import BigInteger, Column, FetchedValue, Integer, Text, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import declarative_base, sessionmaker
from sqlalchemy.orm.exc import StaleDataError

SHIPPED = '已发货'

engine = create_engine('postgresql://', creator=lambda: psycopg2.connect(os.environ['ORDERS_DATABASE']))
Session = sessionmaker(engine)
Base = declarative_base()


class Order(Base):
    __tablename__ = 'shop_order'

    order_no = Column(Text, primary_key=True)
    amount = Column(BigInteger, nullable=False)
    # a new order's is the table's default
    state = Column(Text, server_default=FetchedValue())
    version = Column(Integer, nullable=False)

    # an UPDATE says WHERE version = :read, and raises StaleDataError if that is no longer so
    __mapper_args__ = {'version_id_col': version}


class Parcel(Base):
    __tablename__ = 'shop_parcel'

    parcel_no = Column(BigInteger, primary_key=True)
    order_no = Column(Text, nullable=False)


class Refused(Exception):
    """The guard said no: an illegal move (ID003), a frozen column or a DELETE (ID007)."""


def transaction(work, *args):
    """work(session, ...) in a transaction of its own, and again when another session was faster."""
    for tries_left in reversed(range(10)):
        try:
            with Session.begin() as session:
                return work(session, *args)
        except StaleDataError:
            if not tries_left:
                raise
        except DBAPIError as error:
            if error.orig.pgcode in ('ID003', 'ID007'):
                raise Refused(f'{error.orig.diag.message_primary}. {error.orig.diag.message_detail}') from error
            raise


MOVE = text("""
SELECT outcome, from_state, to_state, version
  FROM idem_move('shop_order', to_jsonb(CAST(:order_no AS text)), :event, :version, :reason)""")


def move(session, order_no, event, version=None, reason=None):
    return session.execute(MOVE, dict(order_no=order_no, event=event, version=version, reason=reason)).one()


def place(session, order_no, amount):
    order = Order(order_no=order_no, amount=int(amount))
    session.add(order)
    session.flush()
    return order.state, order.version


def pay(session, order_no):
    return move(session, order_no, 'pay')


def complete(session, order_no, version=None):
    return move(session, order_no, 'complete', version and int(version))


def ship(session, order_no):
    moved = move(session, order_no, 'ship')
    # whoever was told that it moved, and nobody else, packs
    if moved.outcome == 'moved':
        session.add(Parcel(order_no=order_no))
    return moved


def find(session, order_no):
    return session.query(Order).filter_by(order_no=order_no).one()


def show(session, order_no):
    order = find(session, order_no)
    return order.state, order.version


def set_state(session, order_no, state):
    order = find(session, order_no)
    if order.state == state:
        return ['duplicate']
    order.state = state
    if state == SHIPPED:
        session.add(Parcel(order_no=order_no))
    return ['moved']


def set_all(session, state):
    return [session.query(Order).update({'state': state})]


COMMANDS = {'place': place, 'pay': pay, 'ship': ship, 'complete': complete, 'set': set_state, 'set_all': set_all, 'show': show}


def main(command, *args):
    sys.stdout.reconfigure(encoding='utf-8')
    try:
        print(*transaction(COMMANDS[command], *args))
    except Refused as refused:
        print('refused:', refused)


if __name__ == '__main__':
    main(*sys.argv[1:])
