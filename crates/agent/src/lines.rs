//! Bytes in, lines out: cuts a stream at its line feeds, whatever pieces it arrives in.
//!
//! Every byte belongs to exactly one line, and a line knows where in the stream it is, so what is
//! said about it can be found again in the raw transcript. A line longer than the limit is not
//! kept: its bytes are counted and it comes out as [`Content::TooLong`], so memory is bounded by
//! the limit whatever an agent prints.

use std::ops::Range;

use memchr::memchr;

/// One line of the stream.
pub(crate) struct Line<'a> {
    /// Where it is in the stream, its line feed included.
    pub(crate) at: Range<u64>,
    /// What it holds.
    pub(crate) content: Content<'a>,
}

/// What a line holds.
pub(crate) enum Content<'a> {
    /// All of it, without the line feed.
    Whole(&'a [u8]),
    /// More than is kept.
    TooLong,
}

/// Cuts a stream into lines.
pub(crate) struct Lines {
    limit: usize,
    /// The beginning of a line whose end has not come.
    pending: Vec<u8>,
    /// Bytes of the pending line that were dropped because it is too long.
    dropped: u64,
    /// Where the pending line begins.
    start: u64,
}

impl Lines {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { limit, pending: Vec::new(), dropped: 0, start: 0 }
    }

    /// Bytes taken in so far.
    pub(crate) const fn taken(&self) -> u64 {
        self.start + self.pending.len() as u64 + self.dropped
    }

    /// Bytes held in memory.
    pub(crate) const fn held(&self) -> usize {
        self.pending.capacity()
    }

    /// Takes bytes in and hands out every line that they end.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(Line<'_>)) {
        while let Some(end) = memchr(b'\n', bytes) {
            let (head, rest) = bytes.split_at(end);
            bytes = &rest[1..];
            if self.pending.is_empty() && self.dropped == 0 && head.len() <= self.limit {
                let at = self.start..self.start + head.len() as u64 + 1;
                self.start = at.end;
                each(Line { at, content: Content::Whole(head) });
            } else {
                self.keep(head);
                self.end(1, &mut each);
            }
        }
        self.keep(bytes);
    }

    /// Hands out the last line if it has no end.
    pub(crate) fn finish(&mut self, mut each: impl FnMut(Line<'_>)) {
        if !self.pending.is_empty() || self.dropped > 0 {
            self.end(0, &mut each);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.dropped == 0 && self.pending.len() + bytes.len() <= self.limit {
            self.pending.extend_from_slice(bytes);
        } else {
            self.dropped += self.pending.len() as u64 + bytes.len() as u64;
            self.pending = Vec::new();
        }
    }

    fn end(&mut self, feed: u64, each: &mut impl FnMut(Line<'_>)) {
        let length = self.pending.len() as u64 + self.dropped + feed;
        let at = self.start..self.start + length;
        self.start = at.end;
        if self.dropped > 0 {
            self.dropped = 0;
            each(Line { at, content: Content::TooLong });
        } else {
            each(Line { at, content: Content::Whole(&self.pending) });
            self.pending.clear();
            // One long line must not hold its memory for the rest of the attempt.
            self.pending.shrink_to(64 << 10);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of `pieces` as `start..end text`.
    fn cut(limit: usize, pieces: &[&str]) -> Vec<String> {
        let mut lines = Lines::new(limit);
        let mut seen = Vec::new();
        let mut note = |line: Line<'_>| {
            let text = match line.content {
                Content::Whole(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                Content::TooLong => "(too long)".into(),
            };
            seen.push(format!("{}..{} {text}", line.at.start, line.at.end));
        };
        for piece in pieces {
            lines.push(piece.as_bytes(), &mut note);
        }
        lines.finish(&mut note);
        let total: usize = pieces.iter().map(|piece| piece.len()).sum();
        assert_eq!(lines.taken(), total as u64, "every byte is in exactly one line");
        seen
    }

    #[test]
    fn lines_are_the_same_however_they_arrive() {
        let whole = cut(100, &["one\ntwo\n\nhalf"]);
        assert_eq!(whole, ["0..4 one", "4..8 two", "8..9 ", "9..13 half"]);
        assert_eq!(cut(100, &["o", "ne\nt", "wo", "\n", "\nha", "lf"]), whole);
    }

    #[test]
    fn a_line_past_the_limit_is_counted_and_not_kept() {
        let expected = ["0..4 abc", "4..10 (too long)", "10..13 de"];
        assert_eq!(cut(4, &["abc\n12345\nde\n"]), expected);
        assert_eq!(cut(4, &["abc\n1", "23", "45", "\nde\n"]), expected);
        assert_eq!(cut(4, &["1234", "5"]), ["0..5 (too long)"]);
    }

    #[test]
    fn memory_is_bounded_by_the_limit() {
        let mut lines = Lines::new(1 << 20);
        for _ in 0..64 {
            lines.push(&[b'x'; 1 << 18], |_| {});
            assert!(lines.held() <= 2 << 20, "{} bytes are held", lines.held());
        }
        lines.push(b"\n", |line| assert!(matches!(line.content, Content::TooLong)));
        lines.push(&[b'y'; 1 << 19], |_| {});
        lines.push(b"\n", |_| {});
        assert!(lines.held() <= 64 << 10, "{} bytes are held", lines.held());
    }
}
