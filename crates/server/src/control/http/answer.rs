//! Answers on their way from the thread that makes them to the connection.
//!
//! # Theory
//! A long answer is never in memory as a whole. The thread that makes it sends it in chunks, and
//! waits while the caller has not read enough of them. A short answer is sent whole, with its
//! length.
//!
//! A caller that reads nothing for [`STALL`], or beyond its time, is cut off, since it holds a
//! thread. The connection has the same limit ([`Paced`]). A short answer, and the last chunks of a
//! long one, wait in the connection without a thread.

use api::{Answer, Budget};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Sleep;

/// Bytes of a chunk.
const CHUNK: usize = 64 << 10;
/// Most chunks in flight.
const AHEAD: usize = 4;
/// How long a caller may read nothing.
const STALL: Duration = Duration::from_secs(30);

/// An item in the channel of an answer.
enum Part {
    Chunk(Bytes),
    End,
}

/// The start of an answer: its status, and its text up to the end or the first full chunk.
struct Head {
    status: u16,
    text: Vec<u8>,
    rest: Option<mpsc::Receiver<Part>>,
}

/// The end of an answer that the worker thread writes.
pub(crate) struct Sending {
    status: u16,
    buffer: Vec<u8>,
    head: Option<oneshot::Sender<Head>>,
    rest: Option<mpsc::Sender<Part>>,
    budget: Arc<Budget>,
    runtime: Handle,
}

/// The end of an answer that the connection reads.
pub(crate) struct Receiving(oneshot::Receiver<Head>);

/// The two ends of an answer.
pub(crate) fn answer(budget: Arc<Budget>) -> (Sending, Receiving) {
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
    /// Whether the answer is an error.
    pub(crate) fn is_error(&self) -> bool {
        self.status >= 400
    }

    /// Sends what is left, and then the end.
    pub(crate) fn end(mut self) {
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
    /// The status and the body, once they begin. `None` if the thread that makes them died.
    pub(crate) async fn begin(self) -> Option<(u16, Text)> {
        let Head { status, text, rest } = self.0.await.ok()?;
        Some((status, Text { next: Some(text.into()), rest }))
    }
}

/// The text of an answer.
pub(crate) struct Text {
    next: Option<Bytes>,
    rest: Option<mpsc::Receiver<Part>>,
}

impl Text {
    /// A text that is complete.
    pub(crate) fn whole(text: Vec<u8>) -> Self {
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
            // The worker thread gave up. The caller must not take this for the end of the answer.
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

/// A connection that fails once its caller takes no byte for [`STALL`] while some wait for it.
pub(crate) struct Paced<S> {
    stream: S,
    /// When it fails; `None` while no byte waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncWrite + Unpin> Paced<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, stalled: None }
    }

    fn paced<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let done = write(Pin::new(&mut self.stream), context);
        if done.is_ready() {
            self.stalled = None;
            return done;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(STALL)));
        stalled.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.paced(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.paced(context, |stream, context| stream.poll_write_vectored(context, parts))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
