"""The events: taxi trips with the columns of the thesis's data set, and a topic that holds them.

The thesis has the trips of New York's yellow taxis in November 2025, with a number for each trip
(section 4.1.1). These have the same columns and made values. A message is an Arrow stream of one
row, as in section 4.1.3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tests.services.kafka import Kafka

ID = "trip_id"
_FIRST_PICKUP_US = 1_761_955_200_000_000  # 2025-11-01
_MADE_AT_ONCE = 10_000


def trips(first: int, count: int) -> pa.Table:
    """Return the trips from number ``first`` on."""
    number = np.arange(first, first + count)
    pickup = _FIRST_PICKUP_US + number * 600_000
    fare = number * 7919 % 6_000 / 100 + 3
    tip = number * 31 % 900 / 100
    total = fare + tip + 1.0 + 0.5 + 2.5 + 0.75 + 1.0
    return pa.table(
        {
            ID: pa.array(number, pa.int64()),
            "VendorID": pa.array(number % 3 + 1, pa.int32()),
            "tpep_pickup_datetime": pa.array(pickup, pa.timestamp("us")),
            "tpep_dropoff_datetime": pa.array(
                pickup + number * 13 % 3_600 * 1_000_000, pa.timestamp("us")
            ),
            "passenger_count": pa.array(number % 6, pa.int64()),
            "trip_distance": pa.array(number * 17 % 2_500 / 100, pa.float64()),
            "RatecodeID": pa.array(number % 5 + 1, pa.int64()),
            "store_and_fwd_flag": pa.array(np.where(number % 50 == 0, "Y", "N"), pa.string()),
            "PULocationID": pa.array(number * 37 % 263 + 1, pa.int32()),
            "DOLocationID": pa.array(number * 59 % 263 + 1, pa.int32()),
            "payment_type": pa.array(number % 4, pa.int64()),
            "fare_amount": fare,
            "extra": pa.array(np.full(count, 1.0)),
            "mta_tax": pa.array(np.full(count, 0.5)),
            "tip_amount": tip,
            "tolls_amount": pa.array(np.where(number % 20 == 0, 6.94, 0.0)),
            "improvement_surcharge": pa.array(np.full(count, 1.0)),
            "total_amount": total,
            "congestion_surcharge": pa.array(np.full(count, 2.5)),
            "Airport_fee": pa.array(np.where(number % 15 == 0, 1.75, 0.0)),
            "cbd_congestion_fee": pa.array(np.full(count, 0.75)),
        }
    )


SCHEMA = trips(0, 1).schema


def fill(kafka: Kafka, events: int) -> tuple[str, int]:
    """Send so many trips to a new topic with one partition; return it and its messages' bytes."""
    topic, sent = kafka.topic(), 0
    producer = kafka.producer(linger_ms=50, batch_size=1_000_000)
    for first in range(0, events, _MADE_AT_ONCE):
        made = trips(first, min(_MADE_AT_ONCE, events - first)).to_batches()[0]
        for row in range(made.num_rows):
            payload = _message(made.slice(row, 1))
            sent += len(payload)
            _send(producer, topic, payload)
    producer.flush()
    return topic, sent


def _message(row: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as stream:
        stream.write_batch(row)
    payload: bytes = sink.getvalue().to_pybytes()
    return payload


def _send(producer: Any, topic: str, payload: bytes) -> None:
    while True:
        try:
            producer.produce(topic, payload)
            return
        except BufferError:
            producer.poll(0.1)
