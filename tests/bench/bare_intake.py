"""What intake is compared with: aiokafka and asyncpg with nothing between them.

`python bare_intake.py BOOTSTRAP TOPIC DSN` reads batches of 500 and inserts each by one statement
into a table without an index. No checks, no dead letters, no waiters; it runs until it is ended.
"""

import asyncio
import json
import sys
from uuid import UUID

import asyncpg
from aiokafka import AIOKafkaConsumer

BATCH = 500
TABLE = """
CREATE TABLE bare_requests (request_id uuid NOT NULL, session_id text NOT NULL,
    source_partition integer, source_offset bigint, received_at timestamptz DEFAULT now())
"""
INSERT = """
INSERT INTO bare_requests (request_id, session_id, source_partition, source_offset)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::bigint[])
"""


async def run(bootstrap: str, topic: str, dsn: str) -> None:
    database = await asyncpg.connect(dsn)
    await database.execute(TABLE)
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id="bare",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    while True:
        batches = await consumer.getmany(timeout_ms=100, max_records=BATCH)
        rows = []
        for place, records in batches.items():
            for record in records:
                body = json.loads(record.value)
                request_id = UUID(body["request_id"])
                rows.append((request_id, body["session_id"], place.partition, record.offset))
        if rows:
            await database.execute(INSERT, *map(list, zip(*rows, strict=True)))
            await consumer.commit()


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
