//! The shim's side of its socket: connections, each with one request and one reply.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use crate::plan::Moment;
use crate::shim::wire::{MAX_LINE, MAX_STDIN, Reply, Request, SOCKET};

/// More connections than any provider has use for.
const MAX_CLIENTS: usize = 64;

/// What a connection is waiting for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waiting {
    /// The rest of its request.
    Request,
    /// The report that the agent was executed.
    Started,
    /// Output beyond this offset, or the end, or this moment.
    Output { offset: u64, until: Moment },
    /// The end.
    End,
}

pub(super) struct Client {
    stream: UnixStream,
    received: Vec<u8>,
    pub(super) waiting: Waiting,
}

/// All connections.
pub(super) struct Clients {
    pub(super) listener: UnixListener,
    pub(super) list: Vec<Client>,
}

impl Clients {
    pub(super) fn listen() -> io::Result<Self> {
        let listener = UnixListener::bind(SOCKET)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, list: Vec::new() })
    }

    /// Takes every connection that waits; those beyond the bound are closed at once.
    pub(super) fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.list.len() < MAX_CLIENTS && stream.set_nonblocking(true).is_ok() {
                let received = Vec::new();
                self.list.push(Client { stream, received, waiting: Waiting::Request });
            }
        }
    }

    /// Answers every client that `wanted` chooses, and lets it go.
    pub(super) fn answer_all(&mut self, reply: &Reply, wanted: impl Fn(&Waiting) -> bool) {
        self.list.retain_mut(|client| {
            let done = wanted(&client.waiting);
            if done {
                client.answer(reply);
            }
            !done
        });
    }
}

impl Client {
    pub(super) const fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Reads what is there; a whole request with its bytes, once it is complete. An error means
    /// that the connection is of no more use.
    pub(super) fn receive(&mut self) -> io::Result<Option<(Request, Vec<u8>)>> {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.received.len() > MAX_LINE + MAX_STDIN {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        let Some(line) = self.received.iter().position(|&byte| byte == b'\n') else {
            return match self.received.len() > MAX_LINE {
                true => Err(io::ErrorKind::InvalidData.into()),
                false => Ok(None),
            };
        };
        let request: Request = serde_json::from_slice(&self.received[..line])?;
        let length = match request {
            Request::Write { length, .. } => length,
            _ => 0,
        };
        let body = &self.received[line + 1..];
        if body.len() < length {
            return Ok(None);
        }
        Ok(Some((request, body[..length].to_vec())))
    }

    /// Replies are small and the connection is fresh, so they fit into its buffer.
    pub(super) fn answer(&mut self, reply: &Reply) {
        if let Ok(mut line) = serde_json::to_vec(reply) {
            line.push(b'\n');
            let _ = self.stream.write_all(&line);
        }
    }
}
