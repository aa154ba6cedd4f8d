//! Answers on their way from the thread that makes them to the connection.
//!
//! # Theory
//! A long answer is not held in memory as text: the thread that makes it hands it over in chunks,
//! and waits while the caller has some of them still to read. A short answer is handed over whole,
//! with its length.
//!
//! A caller that reads nothing for [`STALL`], or for longer than its time lasts, is cut off: it
//! holds a thread.

use crate::api::Answer;
use crate::budget::Budget;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

/// Bytes of a chunk.
const CHUNK: usize = 64 << 10;
/// Chunks on their way at a time.
const AHEAD: usize = 4;
/// How long a caller may read nothing.
const STALL: Duration = Duration::from_secs(30);

/// What becomes of an answer.
enum Part {
    Chunk(Bytes),
    End,
}

/// The begin of an answer: its status, and its text up to the end or the first full chunk.
struct Head {
    status: u16,
    text: Vec<u8>,
    rest: Option<mpsc::Receiver<Part>>,
}

/// Takes an answer as it is made.
pub(super) struct Sending {
    status: u16,
    buffer: Vec<u8>,
    head: Option<oneshot::Sender<Head>>,
    rest: Option<mpsc::Sender<Part>>,
    budget: Arc<Budget>,
    runtime: Handle,
}

/// Waits for the begin of an answer.
pub(super) struct Receiving(oneshot::Receiver<Head>);

/// The two ends of an answer.
pub(super) fn answer(budget: Arc<Budget>) -> (Sending, Receiving) {
    let (head, begin) = oneshot::channel();
    let sending = Sending {
        status: 200,
        buffer: Vec::new(),
        head: Some(head),
        rest: None,
        budget,
        runtime: Handle::current(),
    };
    (sending, Receiving(begin))
}

impl Sending {
    /// Hands over what is left, and that it is the end.
    pub(super) fn end(mut self) {
        let text = std::mem::take(&mut self.buffer);
        match (self.head.take(), &self.rest) {
            // The caller may be gone, here and below.
            (Some(head), _) => drop(head.send(Head { status: self.status, text, rest: None })),
            (None, Some(_)) => {
                if self.send(Part::Chunk(text.into())).is_ok() {
                    self.send(Part::End).unwrap_or_default();
                }
            }
            (None, None) => {}
        }
    }

    fn chunk(&mut self) -> io::Result<()> {
        let text = std::mem::take(&mut self.buffer);
        if let Some(head) = self.head.take() {
            let (sender, rest) = mpsc::channel(AHEAD);
            self.rest = Some(sender);
            let head = head.send(Head { status: self.status, text, rest: Some(rest) });
            return head.map_err(|_| io::ErrorKind::BrokenPipe.into());
        }
        self.send(Part::Chunk(text.into()))
    }

    fn send(&self, part: Part) -> io::Result<()> {
        let Some(rest) = &self.rest else { return Ok(()) };
        let left = self.budget.until().map(|until| until.saturating_duration_since(Instant::now()));
        let patience = left.map_or(STALL, |left| left.min(STALL));
        let sent = self.runtime.block_on(async { tokio::time::timeout(patience, rest.send(part)).await });
        match sent {
            Ok(sent) => sent.map_err(|_| io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl Write for Sending {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(text);
        if self.buffer.len() >= CHUNK {
            self.chunk()?;
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Answer for Sending {
    fn begin(&mut self, status: u16) {
        self.status = status;
    }
}

impl Receiving {
    /// The status and the body, as soon as they begin; `None` if the thread that made them died.
    pub(super) async fn begin(self) -> Option<(u16, Text)> {
        let Head { status, text, rest } = self.0.await.ok()?;
        Some((status, Text { next: Some(text.into()), rest }))
    }
}

/// The text of an answer.
pub(super) struct Text {
    next: Option<Bytes>,
    rest: Option<mpsc::Receiver<Part>>,
}

impl Text {
    /// A text that is all there.
    pub(super) fn whole(text: Vec<u8>) -> Self {
        Self { next: Some(text.into()), rest: None }
    }
}

impl Body for Text {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(text) = self.next.take() {
            return Poll::Ready(Some(Ok(Frame::data(text))));
        }
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        rest.poll_recv(context).map(|part| match part {
            Some(Part::Chunk(text)) => Some(Ok(Frame::data(text))),
            Some(Part::End) => None,
            // Whoever made it gave up: the caller must not take this for the end.
            None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_none() && self.rest.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.next, &self.rest) {
            (Some(text), None) => SizeHint::with_exact(text.len() as u64),
            (None, None) => SizeHint::with_exact(0),
            _ => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests;
