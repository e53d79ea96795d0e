//! Copies the agent's output to the log, and standard input from requests to the agent.
//!
//! Output is never dropped: when the log cannot be written, for instance because the disk is full,
//! the pipes are not read until it can, and the agent waits.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use belay_kernel::Timestamp;
use rustix::io::Errno;

use super::child::nonblocking;
use super::follow::Follow;
use crate::error::Refusal;
use crate::log::LogWriter;
use crate::os::clock;
use crate::output::Stream;
use crate::plan::Moment;
use crate::provider::More;
use crate::shim::wire::{MAX_STDIN, STDOUT};

/// How much is read at a time: the size of a pipe.
const READ: usize = 64 << 10;
/// How often a file is read before somebody else has a turn.
const GROWTH: usize = 16;

/// Our ends of the agent's standard streams.
#[derive(Default)]
pub(super) struct Pipes {
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    /// In the place of `stdout`, where that is a regular file.
    follow: Option<Follow>,
}

impl Pipes {
    pub(super) fn of(child: &mut std::process::Child, follow: Option<Follow>) -> io::Result<Self> {
        let pipes = Self {
            stdin: child.stdin.take().map(Into::into),
            stdout: child.stdout.take().map(Into::into),
            stderr: child.stderr.take().map(Into::into),
            follow,
        };
        for pipe in [&pipes.stdin, &pipes.stdout, &pipes.stderr].into_iter().flatten() {
            nonblocking(pipe)?;
        }
        Ok(pipes)
    }
}

/// The two directions.
pub(super) struct Copy {
    log: LogWriter,
    pipes: Pipes,
    buffer: Vec<u8>,
    /// What was read and could not be written yet.
    stalled: Option<(Stream, Timestamp, Vec<u8>)>,
    /// Standard input that the agent has not taken yet.
    pending: VecDeque<u8>,
    stdin_next: u64,
    stdin_ends: bool,
    /// How often memory ran out, as last seen before the cgroup went.
    pub(super) memory_kills: u64,
}

impl Copy {
    pub(super) fn new(log: LogWriter, pipes: Pipes) -> Self {
        Self {
            log,
            pipes,
            buffer: vec![0; READ],
            stalled: None,
            pending: VecDeque::new(),
            stdin_next: 0,
            stdin_ends: false,
            memory_kills: 0,
        }
    }

    pub(super) const fn length(&self) -> u64 {
        self.log.length()
    }

    /// The pipes to read from now.
    pub(super) fn readable(&self) -> impl Iterator<Item = (Stream, &OwnedFd)> {
        let open = self.stalled.is_none();
        let stdout = self.pipes.stdout.as_ref().map(|fd| (Stream::Stdout, fd));
        let stderr = self.pipes.stderr.as_ref().map(|fd| (Stream::Stderr, fd));
        stdout.into_iter().chain(stderr).filter(move |_| open)
    }

    /// What becomes readable when the agent's file grows, and when to look at it whatever happens.
    pub(super) fn growth(&self) -> (Option<&OwnedFd>, Option<Moment>) {
        let follow = self.pipes.follow.as_ref().filter(|_| self.stalled.is_none());
        (follow.and_then(Follow::notices), follow.and_then(Follow::look_at))
    }

    /// Copies what the agent's file has grown by, if it is time to look.
    pub(super) fn follow(&mut self) {
        if !self.is_stalled() && self.pipes.follow.as_ref().is_some_and(Follow::is_due) {
            self.copy_growth();
        }
    }

    /// Copies the agent's file to its end, now that nobody is left who could make it grow, and lets
    /// go of it.
    pub(super) fn follow_to_the_end(&mut self) {
        if !self.is_stalled() && self.copy_growth() {
            self.pipes.follow = None;
            let _ = std::fs::remove_file(STDOUT);
        }
    }

    /// Copies what there is of the agent's file, within bounds. Says whether that was all.
    fn copy_growth(&mut self) -> bool {
        let Some(follow) = &mut self.pipes.follow else { return false };
        for turn in 0..GROWTH {
            match follow.file.read(&mut self.buffer) {
                Ok(count) if count > 0 => {
                    let bytes = &self.buffer[..count];
                    let at = clock::now();
                    if let Err((written, _)) = self.log.append(Stream::Stdout, at, bytes) {
                        let rest = bytes[written..].to_vec();
                        self.stalled = Some((Stream::Stdout, at, rest));
                        follow.look_soon();
                        return false;
                    }
                }
                Ok(_) => {
                    follow.rest(turn > 0);
                    return true;
                }
                Err(_) => {
                    self.pipes.follow = None;
                    return true;
                }
            }
        }
        follow.look_soon();
        false
    }

    /// The pipe to write to, if there is something to write.
    pub(super) fn writable(&self) -> Option<&OwnedFd> {
        self.pipes.stdin.as_ref().filter(|_| !self.pending.is_empty())
    }

    pub(super) const fn is_stalled(&self) -> bool {
        self.stalled.is_some()
    }

    /// Whether both output streams are at their end and all of it is in the log.
    pub(super) const fn is_drained(&self) -> bool {
        self.pipes.stdout.is_none()
            && self.pipes.stderr.is_none()
            && !self.is_following()
            && self.stalled.is_none()
    }

    /// Whether there is a file of which something may not be in the log yet.
    pub(super) const fn is_following(&self) -> bool {
        self.pipes.follow.is_some()
    }

    /// Tries again to write what could not be written.
    pub(super) fn retry(&mut self) {
        if let Some((stream, at, bytes)) = self.stalled.take() {
            self.append(stream, at, bytes);
        }
    }

    fn append(&mut self, stream: Stream, at: Timestamp, bytes: Vec<u8>) {
        if let Err((written, _)) = self.log.append(stream, at, &bytes) {
            self.stalled = Some((stream, at, bytes[written..].to_vec()));
        }
    }

    /// Reads once from a stream that is ready; closes it at its end.
    pub(super) fn read(&mut self, stream: Stream) {
        let slot = match stream {
            Stream::Stdout => &mut self.pipes.stdout,
            Stream::Stderr => &mut self.pipes.stderr,
        };
        let Some(pipe) = slot else { return };
        match rustix::io::read(&*pipe, &mut self.buffer) {
            Ok(0) => *slot = None,
            Ok(count) => {
                let at = clock::now();
                if let Err((written, _)) = self.log.append(stream, at, &self.buffer[..count]) {
                    let rest = self.buffer[written..count].to_vec();
                    self.stalled = Some((stream, at, rest));
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => *slot = None,
        }
    }

    /// What is in standard error now, for the message of a sandbox that could not be made.
    pub(super) fn last_words(&mut self) -> String {
        let Some(pipe) = &self.pipes.stderr else { return String::new() };
        let count = rustix::io::read(pipe, &mut self.buffer).unwrap_or(0);
        String::from_utf8_lossy(&self.buffer[..count]).into_owned()
    }

    /// Takes standard input at an offset; what is known already is skipped. Says where the next
    /// byte goes, which is less than asked for when the agent does not read.
    pub(super) fn take_input(
        &mut self,
        offset: u64,
        bytes: &[u8],
        more: More,
    ) -> Result<u64, Refusal> {
        if offset > self.stdin_next {
            return Err(Refusal::StdinGap { expected: self.stdin_next, asked: offset });
        }
        let known = usize::try_from(self.stdin_next - offset).unwrap_or(usize::MAX);
        let fresh = bytes.get(known..).unwrap_or_default();
        if self.stdin_ends || self.pipes.stdin.is_none() {
            return match fresh.is_empty() {
                true => Ok(self.stdin_next),
                false => Err(Refusal::StdinClosed),
            };
        }
        let taken = fresh.len().min(MAX_STDIN.saturating_sub(self.pending.len()));
        self.pending.extend(&fresh[..taken]);
        self.stdin_next += taken as u64;
        self.stdin_ends = more == More::Ends && taken == fresh.len();
        self.write();
        Ok(self.stdin_next)
    }

    /// Writes what the agent takes now.
    pub(super) fn write(&mut self) {
        while let Some(pipe) = &self.pipes.stdin
            && !self.pending.is_empty()
        {
            let (front, _) = self.pending.as_slices();
            match rustix::io::write(pipe, front) {
                Ok(count) => drop(self.pending.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    self.pending.clear();
                    self.pipes.stdin = None;
                }
            }
        }
        if self.stdin_ends && self.pending.is_empty() {
            self.pipes.stdin = None;
        }
    }
}
