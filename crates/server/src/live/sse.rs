//! Server-sent events: one connection, one stream.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use belay_store::Cursor;
use futures_util::stream;

use super::feed::{Form, Over, Told, document};
use super::listen::{Listener, begin};
use crate::answer::{Failed, bytes};
use crate::service::Service;

/// How long a client waits before it comes back, in milliseconds.
const RETRY: u32 = 1_000;

/// Answers with a stream that goes on until one of the two ends it.
pub(crate) async fn sse<S: Service>(service: S, listener: Listener) -> Result<Response, Failed> {
    let feed = begin(service, listener, Form::Sse).await?;
    // The first message says where the stream begins: whoever is cut off before the first event
    // still knows where to resume.
    let hello = format!("retry: {RETRY}\nid: {}\n: belay\n\n", feed.cursor());
    let first = stream::iter([Ok::<_, Infallible>(Bytes::from(hello))]);
    let rest = stream::unfold(feed, |mut feed| async move {
        let told = feed.next().await?;
        Some((Ok(rendered(told)), feed))
    });
    let mut response = bytes("text/event-stream", Vec::new());
    *response.body_mut() = Body::from_stream(stream::StreamExt::chain(first, rest));
    // The connection has given up its place among the others, so it is not used again.
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    Ok(response)
}

fn rendered(told: Told) -> Bytes {
    match told {
        Told::Events(messages) => match messages.as_slice() {
            [one] => one.clone(),
            several => several.concat().into(),
        },
        Told::Heartbeat(cursor) => Bytes::from(format!("id: {cursor}\n: heartbeat\n\n")),
        Told::Resume(cursor, why) => Bytes::from(resume(cursor, why)),
    }
}

fn resume(cursor: Cursor, why: Over) -> String {
    let data = document("resume", cursor, Some(why));
    format!("id: {cursor}\nevent: stream.resume\ndata: {data}\n\n")
}
