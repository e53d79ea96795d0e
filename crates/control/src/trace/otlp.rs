//! Spans as OTLP's JSON. Ten lines of shape instead of a library of forty crates.

use serde_json::{Value, json};

use super::spans::{Status, TraceSpan};

/// The body of one export.
pub(super) fn body(spans: &[TraceSpan], version: &str) -> Value {
    json!({
        "resourceSpans": [{
            "resource": {
                "attributes": [
                    attribute("service.name", "belay"),
                    attribute("service.version", version),
                ],
            },
            "scopeSpans": [{
                "scope": { "name": "belay", "version": version },
                "spans": spans.iter().map(span).collect::<Vec<_>>(),
            }],
        }],
    })
}

fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn span(span: &TraceSpan) -> Value {
    let attributes: Vec<_> = span.attributes.iter().map(|(key, v)| attribute(key, v)).collect();
    let mut told = json!({
        "traceId": format!("{:032x}", span.own.trace),
        "spanId": format!("{:016x}", span.own.span),
        "name": span.name,
        // 2 is a server's, 1 is internal.
        "kind": if span.serves { 2 } else { 1 },
        "startTimeUnixNano": span.from_ns.to_string(),
        "endTimeUnixNano": span.until_ns.to_string(),
        "attributes": attributes,
    });
    if let Some(parent) = span.parent {
        told["parentSpanId"] = format!("{parent:016x}").into();
    }
    if let Status::Failed(why) = &span.status {
        told["status"] = json!({ "code": 2, "message": why });
    }
    told
}

#[cfg(test)]
mod tests {
    use super::super::context::Context;
    use super::*;

    #[test]
    fn a_span_is_told_as_otlp_says() {
        let told = span(&TraceSpan {
            own: Context { trace: 0xabc, span: 0xd },
            parent: Some(7),
            name: "agent".into(),
            serves: false,
            from_ns: 1_000_000,
            until_ns: 2_000_000,
            attributes: vec![("belay.task", "x".into())],
            status: Status::Failed("crash".into()),
        });
        assert_eq!(
            told,
            json!({
                "traceId": "00000000000000000000000000000abc",
                "spanId": "000000000000000d",
                "parentSpanId": "0000000000000007",
                "name": "agent",
                "kind": 1,
                "startTimeUnixNano": "1000000",
                "endTimeUnixNano": "2000000",
                "attributes": [{ "key": "belay.task", "value": { "stringValue": "x" } }],
                "status": { "code": 2, "message": "crash" },
            })
        );
    }
}
