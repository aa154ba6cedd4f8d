//! One connection, from the first byte to the last.
//!
//! # Theory
//! First client and server agree on an export, option by option, and before that on TLS if the listener wants it: then everything else is refused until the connection is encrypted. Then the client sends requests; each is given to the crew of its pool as soon as it is
//! there, and answered when it is done, in whatever order that is. A task reads requests, another writes answers.
//!
//! Every byte that comes is hostile. Memory is taken for a request before it is read, and given back when its answer has been sent: of a share that the
//! connection has, and of a budget that all connections to a pool have together. Who keeps the others from that budget by sending or taking nothing is cut off.
//!
//! # Life
//! *Haggling*, within a time for each option; *serving*, as long as the client likes; *ending*, when it disconnects, breaks the rules or goes away, when
//! the export goes, or when the server does: then nothing more is read, and what was begun is finished and answered. The export is let go last.

use crate::abi::{BASE_ALLOCATION, INIT_MAGIC, OPTION_MAGIC, OptionHead, cmd, handshake, opt, rep};
use crate::command::{self, Mode, PAYLOAD_MAX, REQUEST_LEN, Request};
use crate::error::Error;
use crate::option::{About, Choice, Contexts, OPTION_MAX, Wish, answer, context, listed};
use crate::reply::Reply;
use crate::server::{Exports, Listing, Offer};
use crate::tls::Tls;
use crate::volumes::{Lease, Volumes};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::timeout;
use zerocopy::FromBytes;

/// How long a client may take for the greeting, and between options: people type these.
const OPTION_TIME: Duration = Duration::from_secs(60);
/// How long a pool may take to open an export, or tell about it, before the client hears that it does not.
const OPEN_TIME: Duration = Duration::from_secs(60);
/// How long a pool may take to say which exports it has, before it is left out of the list.
const LIST_TIME: Duration = Duration::from_secs(5);
/// How long nothing may move while others wait for memory.
const STALL: Duration = Duration::from_secs(10);
/// How long the last answers may take when the server ends the connection.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Requests of a connection that are under way at a time.
const IN_FLIGHT: usize = 128;
/// Bytes that they may need.
const SHARE: usize = 2 * PAYLOAD_MAX as usize;
/// Bytes that requests of all connections to a pool may need.
const BUDGET: usize = 8 * PAYLOAD_MAX as usize;
/// Answers that are sent together.
const BATCH: usize = 32;
/// Bytes of an option that is too long, and is passed over.
const SKIP_MAX: u64 = 1 << 20;

/// What all connections to a pool share. Pools share nothing, so that one whose devices hang leaves the others their memory.
pub(crate) struct Shared {
    budget: Arc<Semaphore>,
}

impl Default for Shared {
    fn default() -> Self {
        Self { budget: Arc::new(Semaphore::new(BUDGET)) }
    }
}

impl Shared {
    /// Whether a large request would have to wait now.
    fn is_short(&self) -> bool {
        self.budget.available_permits() < PAYLOAD_MAX as usize
    }
}

/// Why a connection ended before its client said so.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    /// The system.
    #[error("the connection broke")]
    Broken(#[from] std::io::Error),
    /// Nothing came in time.
    #[error("the client was silent for too long")]
    Silent,
    /// It broke the rules so that the next message can't be found.
    #[error("the client broke the protocol: {0}")]
    Rules(&'static str),
    /// What could only be refused by ending.
    #[error(transparent)]
    Refused(#[from] Error),
    /// The export goes, or the server.
    #[error("the server ends the connection")]
    Over,
}

type Result<T> = std::result::Result<T, Ended>;

/// What was agreed on.
struct Agreed {
    lease: Lease,
    volumes: Arc<Volumes>,
    mode: Mode,
}

/// Serves a connection to its end, encrypted where certificates are given.
pub(crate) async fn serve<R, W>(
    reader: R,
    mut writer: W,
    exports: &dyn Exports,
    tls: Option<&Tls>,
    ending: watch::Receiver<bool>,
) -> Result<()>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let mut reader = buffered(reader);
    let mut haggle = Haggle::new(&mut reader, &mut writer, exports, false);
    let Some(tls) = tls else {
        let agreed = tokio::select! {
            agreed = haggle.greet_and_agree() => agreed?,
            () = is_true(ending.clone()) => return Err(Ended::Over),
        };
        return requests(reader, writer, agreed, ending).await;
    };
    let zeroes = tokio::select! {
        zeroes = haggle.until_secure() => zeroes?,
        () = is_true(ending.clone()) => return Err(Ended::Over),
    };
    let Some(zeroes) = zeroes else { return Ok(()) };
    // What was sent in clear behind the option could be anybody's.
    if !reader.buffer().is_empty() {
        return Err(Ended::Rules("bytes between STARTTLS and its answer"));
    }
    let stream = tokio::select! {
        stream = timely(tls.acceptor().accept(tokio::io::join(reader.into_inner(), writer))) => stream?,
        () = is_true(ending.clone()) => return Err(Ended::Over),
    };
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = buffered(reader);
    let mut haggle = Haggle::new(&mut reader, &mut writer, exports, true);
    let agreed = tokio::select! {
        agreed = haggle.agree(zeroes) => agreed?,
        () = is_true(ending.clone()) => return Err(Ended::Over),
    };
    requests(reader, writer, agreed, ending).await
}

fn buffered<R: AsyncRead>(reader: R) -> BufReader<R> {
    BufReader::with_capacity(16 << 10, reader)
}

/// Serves what was agreed on, if anything was.
async fn requests<R, W>(
    reader: R,
    writer: W,
    agreed: Option<Agreed>,
    ending: watch::Receiver<bool>,
) -> Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let Some(Agreed { lease, volumes, mode }) = agreed else { return Ok(()) };
    let lease = Arc::new(lease);
    let (ended, writer) = transmit(reader, writer, &volumes, Arc::clone(&lease), mode, ending).await;
    // Closing may wait for a device. A client that has seen the end of its connection finds the volume free.
    volumes.crew().run(move || drop(lease)).await;
    if let Some(mut writer) = writer {
        // So that under TLS the end is known to be ours. Who does not take it is gone.
        drop(timeout(LAST_WORDS, writer.shutdown()).await);
    }
    ended
}

/// Waits until it is so.
async fn is_true(mut watched: watch::Receiver<bool>) {
    if watched.wait_for(|is| *is).await.is_err() {
        // Whoever could say so is gone without having said it.
        std::future::pending::<()>().await;
    }
}

async fn timely<T>(what: impl Future<Output = std::io::Result<T>>) -> Result<T> {
    Ok(timeout(OPTION_TIME, what).await.map_err(|_| Ended::Silent)??)
}

/// The negotiation.
struct Haggle<'a, R, W> {
    reader: &'a mut R,
    writer: &'a mut W,
    exports: &'a dyn Exports,
    /// The connection is encrypted.
    secure: bool,
    structured: bool,
    /// The export of which the context was chosen.
    chosen: Option<String>,
}

impl<'a, R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Haggle<'a, R, W> {
    fn new(reader: &'a mut R, writer: &'a mut W, exports: &'a dyn Exports, secure: bool) -> Self {
        Haggle { reader, writer, exports, secure, structured: false, chosen: None }
    }

    async fn greet_and_agree(&mut self) -> Result<Option<Agreed>> {
        let zeroes = self.greet().await?;
        self.agree(zeroes).await
    }

    /// Greets; whether the oldest answer ends in zeroes.
    async fn greet(&mut self) -> Result<bool> {
        let flags = handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES;
        let hello =
            [&INIT_MAGIC.to_be_bytes()[..], &OPTION_MAGIC.to_be_bytes(), &flags.to_be_bytes()].concat();
        self.say(&hello).await?;
        let said = timely(self.reader.read_u32()).await?;
        if said & !u32::from(flags) != 0 {
            return Err(Ended::Rules("unknown client flags"));
        }
        Ok(said & u32::from(handshake::NO_ZEROES) == 0)
    }

    /// The next option that makes sense.
    async fn wish(&mut self) -> Result<(u32, Wish)> {
        loop {
            let mut head = [0; size_of::<OptionHead>()];
            timely(self.reader.read_exact(&mut head)).await?;
            let head = OptionHead::read_from_bytes(&head).expect("the length is right");
            if head.magic.get() != OPTION_MAGIC {
                return Err(Ended::Rules("no option"));
            }
            let (option, len) = (head.option.get(), head.len.get());
            let Some(data) = self.data(len).await? else {
                self.refuse(option, rep::ERR_TOO_BIG, "the option is too long").await?;
                continue;
            };
            match Wish::parse(option, &data) {
                Ok(wish) => return Ok((option, wish)),
                Err(invalid) if option != opt::EXPORT_NAME => {
                    self.refuse(option, rep::ERR_INVALID, invalid.0).await?;
                    continue;
                }
                Err(invalid) => return Err(Ended::Rules(invalid.0)),
            }
        }
    }

    /// Greets, and refuses everything until the connection is to be encrypted; whether the oldest answer ends in zeroes. `None` if the client ends.
    async fn until_secure(&mut self) -> Result<Option<bool>> {
        let zeroes = self.greet().await?;
        loop {
            let (option, wish) = self.wish().await?;
            match wish {
                Wish::Secure => {
                    self.say(&answer(option, rep::ACK, b"")).await?;
                    return Ok(Some(zeroes));
                }
                Wish::Abort => {
                    self.say(&answer(option, rep::ACK, b"")).await?;
                    return Ok(None);
                }
                // There is no answer that says no.
                _ if option == opt::EXPORT_NAME => return Err(Ended::Rules("an export without TLS")),
                _ => self.refuse(option, rep::ERR_TLS_REQD, "TLS first").await?,
            }
        }
    }

    async fn agree(&mut self, zeroes: bool) -> Result<Option<Agreed>> {
        loop {
            let (option, wish) = self.wish().await?;
            match wish {
                Wish::Abort => {
                    self.say(&answer(option, rep::ACK, b"")).await?;
                    return Ok(None);
                }
                Wish::List => self.list().await?,
                Wish::Structured => {
                    self.structured = true;
                    self.say(&answer(option, rep::ACK, b"")).await?;
                }
                Wish::Contexts(contexts) => self.contexts(option, contexts).await?,
                Wish::Choose(choice) if choice.go => {
                    if let Some(agreed) = self.go(option, choice, zeroes).await? {
                        return Ok(Some(agreed));
                    }
                }
                Wish::Choose(choice) => self.info(option, &choice).await?,
                Wish::Secure if self.secure => self.refuse(option, rep::ERR_INVALID, "TLS is there").await?,
                Wish::Secure => self.refuse(option, rep::ERR_UNSUP, "no TLS here").await?,
                Wish::Unknown => self.refuse(option, rep::ERR_UNSUP, "unknown option").await?,
            }
        }
    }

    /// What comes with an option; `None` if it was too long, and has been passed over.
    async fn data(&mut self, len: u32) -> Result<Option<Vec<u8>>> {
        if len > OPTION_MAX {
            if u64::from(len) > SKIP_MAX {
                return Err(Ended::Rules("an option of more than 1 MiB"));
            }
            let mut rest = (&mut *self.reader).take(len.into());
            let passed = timely(tokio::io::copy(&mut rest, &mut tokio::io::sink())).await?;
            if passed < len.into() {
                return Err(Ended::Broken(std::io::ErrorKind::UnexpectedEof.into()));
            }
            return Ok(None);
        }
        let mut data = vec![0; len as usize];
        timely(self.reader.read_exact(&mut data)).await?;
        Ok(Some(data))
    }

    async fn say(&mut self, bytes: &[u8]) -> Result<()> {
        let (writer, said) = (&mut *self.writer, bytes);
        timely(async move {
            writer.write_all(said).await?;
            writer.flush().await
        })
        .await
    }

    async fn refuse(&mut self, option: u32, error: u32, why: &str) -> Result<()> {
        self.say(&answer(option, error, why.as_bytes())).await
    }

    async fn refuse_for(&mut self, option: u32, error: &Error) -> Result<()> {
        let reply = match error {
            Error::NoExport { .. } => rep::ERR_UNKNOWN,
            Error::Busy { .. } => rep::ERR_SHUTDOWN,
            _ => {
                tracing::warn!(error = chain(error), "an export can't be opened");
                rep::ERR_UNKNOWN
            }
        };
        self.refuse(option, reply, &chain(error)).await
    }

    async fn list(&mut self) -> Result<()> {
        let names = match self.exports.listing() {
            Listing::Names(names) => names,
            Listing::All(pools) => {
                let mut names = Vec::new();
                for pool in pools {
                    names.extend(names_of(&pool).await);
                }
                names
            }
        };
        let mut out: Vec<u8> = names.iter().flat_map(|name| listed(name)).collect();
        out.extend(answer(opt::LIST, rep::ACK, b""));
        self.say(&out).await
    }

    /// Where an export is, if it may be asked for here.
    fn find(&self, name: &str) -> std::result::Result<Offer, Error> {
        self.exports.find(name).ok_or_else(|| Error::NoExport { name: name.to_owned() })
    }

    /// What is told of an export.
    async fn about(&self, name: &str) -> std::result::Result<About, Error> {
        let offer = self.find(name)?;
        let (volumes, about) = (Arc::clone(&offer.volumes), offer.name.clone());
        let mut about = in_time(&offer, name, move || volumes.about(&about)).await?;
        about.read_only |= offer.read_only;
        Ok(about)
    }

    async fn info(&mut self, option: u32, choice: &Choice) -> Result<()> {
        match self.about(&choice.name).await {
            Ok(about) => {
                let mut out = about.answer(option, self.structured, &choice.infos);
                out.extend(answer(option, rep::ACK, b""));
                self.say(&out).await
            }
            Err(error) => self.refuse_for(option, &error).await,
        }
    }

    async fn contexts(&mut self, option: u32, contexts: Contexts) -> Result<()> {
        if contexts.set {
            self.chosen = None;
        }
        if !self.structured {
            return self.refuse(option, rep::ERR_INVALID, "replies are not structured").await;
        }
        if let Err(error) = self.about(&contexts.name).await {
            return self.refuse_for(option, &error).await;
        }
        let mut out = Vec::new();
        if contexts.allocation {
            out.extend(context(option));
            if contexts.set {
                self.chosen = Some(contexts.name);
            }
        }
        out.extend(answer(option, rep::ACK, b""));
        self.say(&out).await
    }

    async fn open(&self, choice: &Choice) -> std::result::Result<(Lease, Offer, About), Error> {
        let offer = self.find(&choice.name)?;
        let (volumes, name) = (Arc::clone(&offer.volumes), offer.name.clone());
        let opened = in_time(&offer, &choice.name, move || {
            let lease = volumes.open(&name)?;
            Ok((lease, volumes.about(&name)?))
        });
        let (lease, mut about) = opened.await?;
        about.read_only |= offer.read_only;
        Ok((lease, offer, about))
    }

    async fn go(&mut self, option: u32, choice: Choice, zeroes: bool) -> Result<Option<Agreed>> {
        let (lease, offer, about) = match self.open(&choice).await {
            Ok(opened) => opened,
            // There is no answer that says no.
            Err(error) if option == opt::EXPORT_NAME => return Err(error.into()),
            Err(error) => return self.refuse_for(option, &error).await.map(|()| None),
        };
        let status = self.chosen.as_ref() == Some(&choice.name);
        let mode = Mode { structured: self.structured, status, read_only: about.read_only };
        let out = match option {
            opt::EXPORT_NAME => about.old_style(zeroes, self.structured),
            _ => {
                let mut out = about.answer(option, self.structured, &choice.infos);
                out.extend(answer(option, rep::ACK, b""));
                out
            }
        };
        let said = self.say(&out).await;
        let volumes = offer.volumes;
        if let Err(ended) = said {
            volumes.crew().spawn(move || drop(lease));
            return Err(ended);
        }
        tracing::debug!(
            export = about.name,
            structured = mode.structured,
            context = status.then_some(BASE_ALLOCATION),
            "serving"
        );
        Ok(Some(Agreed { lease, volumes, mode }))
    }
}

/// Has a pool's crew do something for a client who is told if it takes too long. What comes of it then is let go.
async fn in_time<T: Send + 'static>(
    offer: &Offer,
    name: &str,
    job: impl FnOnce() -> std::result::Result<T, Error> + Send + 'static,
) -> std::result::Result<T, Error> {
    let busy = || Error::Busy { name: name.to_owned() };
    match timeout(OPEN_TIME, offer.volumes.crew().run(job)).await {
        Ok(done) => done.unwrap_or_else(|| Err(busy())),
        Err(_) => {
            tracing::warn!(export = name, "its pool does not answer");
            Err(busy())
        }
    }
}

/// The exports of a pool; none if it does not say in time.
async fn names_of(pool: &Arc<Volumes>) -> Vec<String> {
    let asked = Arc::clone(pool);
    match timeout(LIST_TIME, pool.crew().run(move || asked.names())).await {
        Ok(Some(Ok(names))) => names,
        Ok(Some(Err(error))) => {
            tracing::warn!(error = chain(&error), "a pool's exports can't be listed");
            Vec::new()
        }
        Ok(None) | Err(_) => {
            tracing::warn!("a pool does not say which exports it has");
            Vec::new()
        }
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        // Transparent errors say what their source says.
        if !said.ends_with(&text) {
            said = format!("{said}: {text}");
        }
        next = cause.source();
    }
    said
}

/// What a request holds until its answer is sent.
struct Held {
    _slot: OwnedSemaphorePermit,
    _share: OwnedSemaphorePermit,
    _budget: OwnedSemaphorePermit,
}

/// An answer that is to be sent.
struct Outgoing {
    reply: Reply,
    _held: Held,
}

/// One connection's requests.
struct Requests<'a> {
    volumes: &'a Volumes,
    lease: Arc<Lease>,
    mode: Mode,
    shared: Arc<Shared>,
    slots: Arc<Semaphore>,
    share: Arc<Semaphore>,
    gone: Arc<AtomicBool>,
    answers: mpsc::UnboundedSender<Outgoing>,
}

/// Serves requests to their end; with what they were answered by, which is still to be closed, if that can be had.
async fn transmit<R, W>(
    mut reader: R,
    writer: W,
    volumes: &Volumes,
    lease: Arc<Lease>,
    mode: Mode,
    ending: watch::Receiver<bool>,
) -> (Result<()>, Option<W>)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let shared = Arc::clone(volumes.shared());
    let (answers, waiting) = mpsc::unbounded_channel();
    let mut writing = tokio::spawn(send(writer, waiting, Arc::clone(&shared)));
    let over = lease.over();
    let requests = Requests {
        volumes,
        lease,
        mode,
        shared,
        slots: Arc::new(Semaphore::new(IN_FLIGHT)),
        share: Arc::new(Semaphore::new(SHARE)),
        gone: Arc::default(),
        answers,
    };
    let gone = Arc::clone(&requests.gone);
    let ended = tokio::select! {
        ended = requests.read(&mut reader) => ended,
        () = is_true(over) => Err(Ended::Over),
        () = is_true(ending) => Err(Ended::Over),
        // Answers can't be sent any more.
        sent = &mut writing => {
            gone.store(true, Ordering::Relaxed);
            finish(&requests.into_slots()).await;
            return match sent {
                Ok(Err(ended)) => (Err(ended), None),
                Ok(Ok(writer)) => (Err(Ended::Over), Some(writer)),
                Err(_) => (Err(Ended::Over), None),
            };
        }
    };
    let slots = requests.into_slots();
    if ended.is_err() {
        // Who went away, or is sent away, does not wait for what takes long.
        gone.store(true, Ordering::Relaxed);
        if timeout(LAST_WORDS, finish(&slots)).await.is_err() {
            writing.abort();
        }
    }
    finish(&slots).await;
    match writing.await {
        Ok(Ok(writer)) => (ended, Some(writer)),
        Ok(Err(broken)) => (ended.and(Err(broken)), None),
        Err(_) => (ended, None),
    }
}

impl Requests<'_> {
    /// Reads requests and gives them to the crew, until the client disconnects.
    async fn read<R: AsyncRead + Unpin>(&self, reader: &mut R) -> Result<()> {
        loop {
            let mut head = [0; REQUEST_LEN];
            reader.read_exact(&mut head).await?;
            let request = Request::decode(&head).ok_or(Ended::Rules("no request"))?;
            if request.command == cmd::DISC {
                return Ok(());
            }
            if request.payload() > PAYLOAD_MAX {
                return Err(Ended::Rules("a write of more than it may have"));
            }
            let held = self.hold(&request).await;
            let payload = self.payload(reader, &request).await?;
            let (lease, mode, gone) = (Arc::clone(&self.lease), self.mode, Arc::clone(&self.gone));
            let answers = self.answers.clone();
            self.volumes.crew().spawn(move || {
                let gone = || gone.load(Ordering::Relaxed);
                let reply = command::run(lease.disk(), mode, &request, &payload, &gone);
                drop(lease);
                // If nobody takes it, its client is gone.
                drop(answers.send(Outgoing { reply, _held: held }));
            });
        }
    }

    /// Takes what a request needs, as soon as it is there.
    async fn hold(&self, request: &Request) -> Held {
        let cost = request.cost();
        let take = async |from: &Arc<Semaphore>, n| {
            Arc::clone(from).acquire_many_owned(n).await.expect("nobody closes it")
        };
        let slot = take(&self.slots, 1).await;
        let share = take(&self.share, cost).await;
        Held { _slot: slot, _share: share, _budget: take(&self.shared.budget, cost).await }
    }

    async fn payload<R: AsyncRead + Unpin>(&self, reader: &mut R, request: &Request) -> Result<Vec<u8>> {
        let mut payload = vec![0; request.payload() as usize];
        let mut done = 0;
        while done < payload.len() {
            match timeout(STALL, reader.read(&mut payload[done..])).await {
                Ok(Ok(0)) => return Err(Ended::Broken(std::io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => done += read?,
                Err(_) if self.shared.is_short() => return Err(Ended::Silent),
                Err(_) => {}
            }
        }
        Ok(payload)
    }

    /// No request is read any more; what those that were read hold.
    ///
    /// This drops the sender of answers. An answer that comes in the moment in which the receiver
    /// goes stays in the channel until the last sender is gone, with the slot that it holds.
    fn into_slots(self) -> Arc<Semaphore> {
        self.slots
    }
}

/// Waits until nothing is under way, and every answer is sent, or can't be.
async fn finish(slots: &Semaphore) {
    drop(slots.acquire_many(IN_FLIGHT as u32).await.expect("it is never closed"));
}

/// Sends answers, as long as there may be more, and gives back what it sends by.
async fn send<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut waiting: mpsc::UnboundedReceiver<Outgoing>,
    shared: Arc<Shared>,
) -> Result<W> {
    let mut batch = Vec::with_capacity(BATCH);
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        let mut slices: Vec<IoSlice<'_>> = batch.iter().flat_map(|out| out.reply.slices()).collect();
        let mut left = &mut slices[..];
        while !left.is_empty() {
            match timeout(STALL, writer.write_vectored(left)).await {
                Ok(Ok(0)) => return Err(Ended::Broken(std::io::ErrorKind::WriteZero.into())),
                Ok(written) => IoSlice::advance_slices(&mut left, written?),
                Err(_) if shared.is_short() => return Err(Ended::Silent),
                Err(_) => {}
            }
        }
        drop(slices);
        // What was sent may still lie in a buffer of TLS, where it holds what it was made with.
        loop {
            match timeout(STALL, writer.flush()).await {
                Ok(flushed) => break flushed?,
                Err(_) if shared.is_short() => return Err(Ended::Silent),
                Err(_) => {}
            }
        }
        batch.clear();
    }
    Ok(writer)
}
