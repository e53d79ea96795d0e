//! What is sent: the envelope that a letter is stored with, the bodies made of it, the signature.

use belay_kernel::Timestamp;
use belay_store::Event;
use belay_store::rows::{LetterRow, Shape, WebhookRow};
use ring::hmac;
use serde_json::{Value, json};

use super::courier::Parcel;

/// The event as the API tells it, with what a person wants to read beside it.
pub(super) fn envelope(delivery: &str, hook: &str, event: &Event, title: Option<&str>) -> Value {
    let told = &event.event;
    json!({
        "id": delivery,
        "webhook": hook,
        "number": event.number,
        "kind": told.kind,
        "at": told.at,
        "task": told.task,
        "attempt": told.attempt,
        "title": title,
        "body": serde_json::from_str::<Value>(&told.body).unwrap_or_default(),
    })
}

/// The request that delivers a letter.
pub(super) fn parcel(
    hook: &WebhookRow,
    letter: &LetterRow,
    now: Timestamp,
    limit: std::time::Duration,
) -> Parcel {
    let mut headers = vec![
        ("belay-delivery", letter.delivery.to_string()),
        ("belay-event", letter.kind.to_string()),
        ("belay-try", (letter.tries + 1).to_string()),
    ];
    let envelope: Value = serde_json::from_str(&letter.envelope).unwrap_or_default();
    let body = match hook.shape {
        Shape::Belay => {
            headers.push(("content-type", "application/json".to_owned()));
            letter.envelope.as_bytes().to_vec()
        }
        Shape::Slack => {
            headers.push(("content-type", "application/json".to_owned()));
            let text = format!("*{}*\n{}", escaped(&heading(&envelope)), escaped(&line(&envelope)));
            json!({ "text": text }).to_string().into_bytes()
        }
        Shape::Ntfy => {
            headers.push(("content-type", "text/plain; charset=utf-8".to_owned()));
            headers.push(("title", header_text(&heading(&envelope))));
            headers.push(("tags", tag(&letter.kind).to_owned()));
            headers.push(("priority", priority(&letter.kind).to_owned()));
            line(&envelope).into_bytes()
        }
    };
    if let Some(secret) = &hook.secret {
        let seconds = now.as_millis().div_euclid(1_000);
        headers.push(("belay-signature", signature(&secret.0, seconds, &body)));
    }
    Parcel { url: hook.url.0.clone(), headers, body, limit }
}

/// `t=…,v1=…`: HMAC-SHA256 over the seconds, a point, and the body.
pub(super) fn signature(secret: &str, seconds: i64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let mut context = hmac::Context::with_key(&key);
    context.update(format!("{seconds}.").as_bytes());
    context.update(body);
    let hex: String = context.sign().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={seconds},v1={hex}")
}

/// The first line for a person: which task, and what became of it.
fn heading(envelope: &Value) -> String {
    let kind = envelope["kind"].as_str().unwrap_or("event");
    let what = match kind {
        "task.ready" => "is ready for review",
        "task.completed" => "is completed",
        "task.failed" => "failed",
        "task.timed_out" => "timed out",
        "task.cancelled" => "is cancelled",
        "task.budget_exceeded" => "used up its budget",
        "task.question" => "asks",
        "task.created" => "is made",
        "task.queued" => "is queued",
        "task.claimed" => "is claimed",
        "task.running" => "is running",
        "task.blocked" => "is blocked",
        "task.pending" => "waits to be run",
        "alert.firing" => "Alert",
        "alert.cleared" => "Alert cleared",
        other => other,
    };
    match envelope["title"].as_str().filter(|title| !title.is_empty()) {
        Some(title) => format!("“{title}” {what}"),
        None => what.to_owned(),
    }
}

/// What more there is to say, in one line: the question, the sentence, the reason.
fn line(envelope: &Value) -> String {
    let body = &envelope["body"];
    let said = ["text", "sentence", "message", "cause", "reason"];
    let said = said.iter().find_map(|key| body[*key].as_str().filter(|text| !text.is_empty()));
    let said: String = said.unwrap_or_default().chars().take(1_000).collect();
    match envelope["task"].as_str() {
        Some(task) if said.is_empty() => format!("task {task}"),
        Some(task) => format!("{said} (task {task})"),
        None => said,
    }
}

/// Slack reads three characters as markup.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// ntfy takes a title beyond ASCII as RFC 2047 has it.
fn header_text(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
    if plain.is_ascii() {
        return plain;
    }
    format!("=?UTF-8?B?{}?=", base64(plain.as_bytes()))
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for piece in bytes.chunks(3) {
        let bits = piece.iter().fold(0u32, |bits, byte| (bits << 8) | u32::from(*byte));
        let bits = bits << (8 * (3 - piece.len()));
        for place in 0..4 {
            let letter = LETTERS[((bits >> (18 - 6 * place)) & 63) as usize];
            text.push(if place <= piece.len() { letter as char } else { '=' });
        }
    }
    text
}

fn tag(kind: &str) -> &'static str {
    match kind {
        "task.ready" | "task.completed" | "alert.cleared" => "white_check_mark",
        "task.question" => "question",
        "task.failed" | "task.timed_out" | "task.budget_exceeded" => "x",
        "alert.firing" => "rotating_light",
        _ => "information_source",
    }
}

fn priority(kind: &str) -> &'static str {
    match kind {
        "alert.firing" => "5",
        "task.question" | "task.failed" | "task.timed_out" | "task.budget_exceeded" => "4",
        _ => "3",
    }
}

#[cfg(test)]
mod tests {
    use belay_kernel::{NodeId, WebhookId};
    use belay_store::List;
    use belay_store::rows::{HookOrigin, LetterState, Secret};

    use super::*;

    fn sent(shape: Shape, kind: &str, title: Option<&str>, body: Value) -> Parcel {
        let at = Timestamp::from_millis(1_700_000_000_500);
        let hook = WebhookRow {
            id: WebhookId::from_bits(1),
            name: "farm".into(),
            url: Secret("https://example.org/x".into()),
            shape,
            kinds: List::default(),
            secret: Some(Secret("sesame".into())),
            origin: HookOrigin::Api,
            seen: 0,
            owner: Some(NodeId::from_bits(1)),
            created_at: at,
            paused_at: None,
        };
        let envelope = json!({
            "id": "d", "kind": kind, "task": "0000000000000001", "title": title, "body": body,
        });
        let letter = LetterRow {
            webhook: hook.id,
            number: 3,
            task: None,
            delivery: "d".into(),
            kind: kind.into(),
            envelope: envelope.to_string().into(),
            state: LetterState::Waiting,
            tries: 1,
            since: at,
            send_at: at,
            failure: None,
            failed_at: None,
            made_at: at,
        };
        parcel(&hook, &letter, at, std::time::Duration::from_secs(1))
    }

    fn header<'a>(parcel: &'a Parcel, name: &str) -> &'a str {
        let found = parcel.headers.iter().find(|(known, _)| *known == name);
        &found.unwrap().1
    }

    #[test]
    fn the_signature_is_hmac_sha256_over_time_and_body() {
        // printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac sesame
        assert_eq!(
            signature("sesame", 1_700_000_000, b"{\"a\":1}"),
            "t=1700000000,v1=961ee441db69fca5ccc174d9488a77f3c0397cd3ce633bd80dbc6e3320242468"
        );
        let parcel = sent(Shape::Belay, "task.ready", None, json!({}));
        let signed = signature("sesame", 1_700_000_000, &parcel.body);
        assert_eq!(header(&parcel, "belay-signature"), signed);
        assert_eq!(header(&parcel, "belay-try"), "2");
        assert_eq!(format!("{parcel:?}"), "Parcel { bytes: 79, .. }");
    }

    #[test]
    fn slack_gets_a_message_without_markup_of_the_agents() {
        let body = json!({ "text": "Use <b> & go?" });
        let parcel = sent(Shape::Slack, "task.question", Some("Mend <it>"), body);
        let told: Value = serde_json::from_slice(&parcel.body).unwrap();
        assert_eq!(
            told["text"],
            "*“Mend &lt;it&gt;” asks*\nUse &lt;b&gt; &amp; go? (task 0000000000000001)"
        );
    }

    #[test]
    fn ntfy_gets_a_line_and_headers() {
        let body = json!({ "sentence": "It burns." });
        let parcel = sent(Shape::Ntfy, "alert.firing", None, body);
        assert_eq!(parcel.body, b"It burns. (task 0000000000000001)");
        assert_eq!(header(&parcel, "title"), "Alert");
        assert_eq!(header(&parcel, "priority"), "5");
        let parcel = sent(Shape::Ntfy, "task.ready", Some("Zaun\r\nX: y"), json!({}));
        assert_eq!(
            header(&parcel, "title"),
            "=?UTF-8?B?4oCcWmF1blg6IHnigJ0gaXMgcmVhZHkgZm9yIHJldmlldw==?="
        );
    }

    #[test]
    fn base64_is_as_everywhere() {
        for (plain, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
