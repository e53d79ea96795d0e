"""What `cargo xtask api` does to the bodies that schemathesis draws.

An id that was drawn names nothing, and limits that were drawn contradict each other: nearly every
task would be refused, and no walk would go further than that. So most tasks are made without them;
one in eight keeps them, and is refused as it should be. So it is with revisions that nobody saw and
with keys that were drawn before. A webhook that was drawn must not reach anybody: it points to a
port of this machine at which nobody listens.
"""

import zlib

import schemathesis

NOBODY = "http://127.0.0.1:9/"


def mostly(drawn):
    """Seven of eight, the same ones every time."""
    return zlib.crc32(repr(drawn).encode("utf-8", "replace")) % 8 != 0


@schemathesis.hook
def map_headers(context, headers):
    if headers and mostly((context.operation.label, headers)):
        return {key: headers[key] for key in headers if key not in ("If-Match", "Idempotency-Key")}
    return headers


@schemathesis.hook
def map_query(context, query):
    """Nobody waits long for what does not happen here."""
    waits = (query or {}).get("wait_ms")
    if isinstance(waits, int) and waits > 100:
        return {**query, "wait_ms": 100}
    return query


@schemathesis.hook("map_case").apply_to(operation_id="post_tasks")
def without_what_names_nothing(context, case):
    # What was drawn to be refused stays as it is.
    meant = case.meta is not None and case.meta.generation.mode.is_positive
    if meant and isinstance(case.body, dict) and mostly(case.body):
        left_out = ("after", "parent", "limits")
        case.body = {key: case.body[key] for key in case.body if key not in left_out}
    return case


@schemathesis.hook("map_body").apply_to(operation_id=["post_webhooks", "patch_webhooks_id"])
def to_nobody(context, body):
    if isinstance(body, dict) and str(body.get("url", "")).startswith("http"):
        return {**body, "url": NOBODY}
    return body
