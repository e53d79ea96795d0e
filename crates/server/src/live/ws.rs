//! WebSocket: the same stream as JSON messages. What a client says is not listened to, but that it
//! goes away is.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use belay_store::Cursor;
use futures_util::SinkExt;

use super::feed::{Feed, Form, Over, Told, document};
use super::listen::{Listener, begin};
use crate::answer::Failed;
use crate::service::Service;

/// The largest message that is taken of a client; it has nothing to say.
const MESSAGE_LIMIT: usize = 4 << 10;
/// How long the last message, and the goodbye, may take.
const GOODBYE: Duration = Duration::from_secs(5);

/// Answers with an upgrade to a stream.
pub(crate) async fn ws<S: Service>(
    service: S,
    listener: Listener,
    upgrade: WebSocketUpgrade,
) -> Result<Response, Failed> {
    let feed = begin(service, listener, Form::Json).await?;
    let upgrade = upgrade.max_message_size(MESSAGE_LIMIT).max_frame_size(MESSAGE_LIMIT);
    Ok(upgrade.on_upgrade(move |socket| talk(socket, feed)))
}

async fn talk<S: Service>(mut socket: WebSocket, mut feed: Feed<S>) {
    let hello = document("heartbeat", feed.cursor(), None);
    if socket.send(Message::Text(hello.into())).await.is_err() {
        return;
    }
    loop {
        let told = tokio::select! {
            told = feed.next() => told,
            said = socket.recv() => match said {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => continue,
            },
        };
        let sent = match told {
            Some(Told::Events(messages)) => send(&mut socket, messages).await,
            Some(Told::Heartbeat(cursor)) => {
                socket.send(Message::Text(document("heartbeat", cursor, None).into())).await
            }
            Some(Told::Resume(cursor, why)) => {
                let _ = tokio::time::timeout(GOODBYE, close(&mut socket, cursor, why)).await;
                return;
            }
            None => return,
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn send(socket: &mut WebSocket, messages: Vec<axum::body::Bytes>) -> Result<(), axum::Error> {
    for message in messages {
        let text = Utf8Bytes::try_from(message).map_err(axum::Error::new)?;
        socket.feed(Message::Text(text)).await?;
    }
    socket.flush().await
}

/// Says where to resume and why, and goodbye.
async fn close(socket: &mut WebSocket, cursor: Cursor, why: Over) -> Result<(), axum::Error> {
    socket.send(Message::Text(document("resume", cursor, Some(why)).into())).await?;
    let code = match why {
        Over::Stopping => 1012,
        Over::Slow | Over::Unavailable => 1013,
        Over::Forbidden => 1008,
    };
    socket.send(Message::Close(Some(CloseFrame { code, reason: why.name().into() }))).await?;
    // The client's own goodbye.
    while let Some(Ok(_)) = socket.recv().await {}
    Ok(())
}
