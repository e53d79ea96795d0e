//! As much of HTTP/1.1 as the agents' clients need: bodies by length or in chunks, replies in
//! chunks so that a broken connection is seen as broken.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// The largest body that is read; agents send whole conversations.
const MAX_BODY: u64 = 256 << 20;

/// A request as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Incoming {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Incoming {
    /// Reads one request; nothing if the peer closed without sending one.
    pub(crate) fn read(stream: &TcpStream) -> io::Result<Option<Self>> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let (Some(method), Some(path)) = (words.next(), words.next()) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let (method, path) = (method.to_owned(), path.to_owned());
        let headers = read_headers(&mut reader)?;
        let mut incoming = Self { method, path, headers, body: Vec::new() };
        if incoming.header("expect").is_some() {
            (&*stream).write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        incoming.body = incoming.read_body(&mut reader)?;
        Ok(Some(incoming))
    }

    /// Whether it is for the MCP server.
    pub(crate) fn is_mcp(&self) -> bool {
        self.path.starts_with("/mcp")
    }

    /// Whether another request may follow on its connection: a client of MCP sends one after the
    /// other, one of a model sends one.
    pub(crate) fn stays(&self) -> bool {
        self.is_mcp() && self.header("connection") != Some("close")
    }

    /// The value of a header, whose name is given in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn read_body(&self, reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if self.header("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
            while let Some(size) = read_chunk_size(reader)? {
                if body.len() as u64 + size > MAX_BODY {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                reader.by_ref().take(size).read_to_end(&mut body)?;
                reader.read_line(&mut String::new())?;
            }
        } else if let Some(length) = self.header("content-length") {
            let length: u64 = length.parse().map_err(|_| io::ErrorKind::InvalidData)?;
            reader.by_ref().take(length.min(MAX_BODY)).read_to_end(&mut body)?;
        }
        Ok(body)
    }
}

fn read_headers(reader: &mut impl BufRead) -> io::Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end();
        if line.is_empty() {
            return Ok(headers);
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
}

fn read_chunk_size(reader: &mut impl BufRead) -> io::Result<Option<u64>> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let digits = line.trim().split(';').next().unwrap_or_default();
    let size = u64::from_str_radix(digits, 16).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok((size > 0).then_some(size))
}

/// A whole reply, the last of its connection.
pub(crate) fn respond(
    stream: &TcpStream,
    status: u16,
    headers: &[(&str, String)],
    content_type: &str,
    body: &[u8],
) -> io::Result<()> {
    let close = [headers, &[("connection", "close".to_owned())]].concat();
    respond_and_stay(stream, status, &close, content_type, body)
}

/// A whole reply, after which the connection takes another request.
pub(crate) fn respond_and_stay(
    mut stream: &TcpStream,
    status: u16,
    headers: &[(&str, String)],
    content_type: &str,
    body: &[u8],
) -> io::Result<()> {
    let mut head = format!(
        "HTTP/1.1 {status} {}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n",
        reason(status),
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(&[head.as_bytes(), body].concat())
}

/// A reply in chunks. Without [`Chunked::finish`] the reader sees a broken connection.
pub(crate) struct Chunked<'a> {
    stream: &'a TcpStream,
}

impl<'a> Chunked<'a> {
    pub(crate) fn begin(mut stream: &'a TcpStream, content_type: &str) -> io::Result<Self> {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncache-control: no-cache\r\n\
             transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        Ok(Self { stream })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.stream.write_all(&chunk)
    }

    pub(crate) fn finish(self) -> io::Result<()> {
        let mut stream = self.stream;
        stream.write_all(b"0\r\n\r\n")
    }
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        202 => "Accepted",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        529 => "Overloaded",
        _ => "Status",
    }
}
