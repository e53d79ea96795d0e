//! A client of server-sent events that sees every byte: it can be slow, and it can go away.
#![allow(dead_code)]

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::node::head;

/// One message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Message {
    pub(crate) id: Option<String>,
    pub(crate) event: Option<String>,
    pub(crate) data: Option<String>,
    pub(crate) comment: Option<String>,
}

impl Message {
    /// The data, as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(self.data.as_deref().unwrap_or("null")).unwrap()
    }
}

/// A connection with a stream on it.
#[derive(Debug)]
pub(crate) struct Sse {
    pub(crate) status: u16,
    stream: BufReader<TcpStream>,
    text: String,
    over: bool,
}

impl Sse {
    /// Asks for a stream at `path`, with this last event id.
    pub(crate) async fn open(
        address: SocketAddr,
        token: &str,
        query: &str,
        last: Option<&str>,
    ) -> io::Result<Self> {
        let last = last.map_or(String::new(), |id| format!("Last-Event-ID: {id}\r\n"));
        let line = format!("GET /api/v1/events/stream{query}");
        Self::ask(address, &format!("{}{last}\r\n", head(&line, token))).await
    }

    /// The same as a page does it, which can say no header.
    pub(crate) async fn open_as_page(address: SocketAddr, ticket: &str) -> io::Result<Self> {
        let line = format!("GET /api/v1/events/stream?ticket={ticket} HTTP/1.1");
        Self::ask(address, &format!("{line}\r\nHost: localhost\r\n\r\n")).await
    }

    async fn ask(address: SocketAddr, head: &str) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(head.as_bytes()).await?;
        let mut stream = BufReader::new(stream);
        let mut status = String::new();
        stream.read_line(&mut status).await?;
        let status = status.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or(io::ErrorKind::UnexpectedEof)?;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? <= 2 {
                return Ok(Self { status, stream, text: String::new(), over: false });
            }
        }
    }

    /// The next message; nothing, when the stream was ended as it should be.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Message>> {
        loop {
            if let Some((message, rest)) = self.text.split_once("\n\n") {
                let message = read(message);
                self.text = rest.to_owned();
                return Ok(Some(message));
            }
            if self.over {
                return Ok(None);
            }
            self.chunk().await?;
        }
    }

    /// Reads one chunk of the answer's body.
    async fn chunk(&mut self) -> io::Result<()> {
        let mut size = String::new();
        self.stream.read_line(&mut size).await?;
        let size = usize::from_str_radix(size.trim(), 16);
        let size = size.map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        let mut bytes = vec![0; size + 2];
        self.stream.read_exact(&mut bytes).await?;
        bytes.truncate(size);
        self.over = size == 0;
        self.text += &String::from_utf8(bytes).map_err(io::Error::other)?;
        Ok(())
    }
}

fn read(text: &str) -> Message {
    let mut message = Message::default();
    for line in text.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = Some(value.trim_start().to_owned());
        match name {
            "id" => message.id = value,
            "event" => message.event = value,
            "data" => message.data = value,
            "" => message.comment = value,
            _ => {}
        }
    }
    message
}
