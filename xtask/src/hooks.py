"""What `cargo xtask api` does to the bodies that schemathesis draws.

An id that was drawn names nothing, and limits that were drawn contradict each other: nearly every
task would be refused, and no walk would go further than that. So most tasks are made without them;
one in eight keeps them, and is refused as it should be. A webhook that was drawn must not reach
anybody: it points to a port of this machine at which nobody listens.
"""

import zlib

import schemathesis

NOBODY = "http://127.0.0.1:9/"


@schemathesis.hook("map_body").apply_to(operation_id="post_tasks")
def without_what_names_nothing(context, body):
    if isinstance(body, dict) and zlib.crc32(repr(body).encode("utf-8", "replace")) % 8:
        return {key: body[key] for key in body if key not in ("after", "parent", "limits")}
    return body


@schemathesis.hook("map_body").apply_to(operation_id=["post_webhooks", "patch_webhooks_id"])
def to_nobody(context, body):
    if isinstance(body, dict) and str(body.get("url", "")).startswith("http"):
        return {**body, "url": NOBODY}
    return body
