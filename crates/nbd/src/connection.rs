//! One connection, from the first byte to the last.
//!
//! # Theory
//! First, client and server negotiate an export, option by option. If the listener requires TLS,
//! they negotiate that before, and all other options are refused until the connection is encrypted.
//!
//! Then the client sends requests. Each goes to the worker pool as soon as it has been read, and
//! its answer is sent when it is done, in any order. One task reads requests, another writes
//! answers.
//!
//! Every byte from the client is hostile. Memory is reserved for a request before it is read, and
//! released when its answer has been sent. It comes from a share of the connection, and from a
//! budget that all connections to a pool have in common. A client that keeps others from the budget
//! by sending or receiving nothing is disconnected.
//!
//! The connection is in one of three states, in this order:
//!
//! | state | until |
//! |---|---|
//! | negotiation | an export is chosen; each option has a time limit |
//! | transmission | the client disconnects or breaks the protocol; the export or server ends |
//! | ending | the requests in progress are done and answered; no more are read |
//!
//! The export is released last.

use crate::abi::{BASE_ALLOCATION, INIT_MAGIC, OPTION_MAGIC, OptionHead, cmd, handshake, opt, rep};
use crate::command::{self, Mode, PAYLOAD_MAX, REQUEST_LEN, Request};
use crate::error::Error;
use crate::option::{About, Choice, Contexts, OPTION_MAX, Wish, answer, context, listed};
use crate::peer::Peer;
use crate::reply::Reply;
use crate::server::{Exports, Listing, Offer};
use crate::tls::Tls;
use crate::volumes::{Lease, Volumes};
use observe::clients::Connection;
use observe::ops::Frontend;
use observe::work::{self, Job, Kind};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::timeout;
use zerocopy::FromBytes;

/// How long a client may take for the greeting, and between options. People type options by hand.
const OPTION_TIME: Duration = Duration::from_secs(60);
/// How long a pool may take to open or describe an export before the client gets an error.
const OPEN_TIME: Duration = Duration::from_secs(60);
/// How long a pool may take to list its exports before the list leaves them out.
const LIST_TIME: Duration = Duration::from_secs(5);
/// How long a transfer may stand still while other connections wait for memory.
const STALL: Duration = Duration::from_secs(10);
/// How long the last answers may take when the server ends the connection.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// The most requests of a connection in progress.
const IN_FLIGHT: usize = 128;
/// The most bytes that these may need.
const SHARE: usize = 2 * PAYLOAD_MAX as usize;
/// The most bytes that the requests of all connections to a pool may need.
const BUDGET: usize = 8 * PAYLOAD_MAX as usize;
/// The most answers that are sent together.
const BATCH: usize = 32;
/// The longest option that is skipped, in bytes. A longer one ends the connection.
const SKIP_MAX: u64 = 1 << 20;

/// What all connections to a pool share.
///
/// Pools share nothing. So a pool with devices that hang leaves the others their memory.
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

/// Why a connection ended without a disconnect by its client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    /// A system call failed, or the client closed the connection.
    #[error("the connection broke")]
    Broken(#[from] std::io::Error),
    /// The client sent or received nothing in time.
    #[error("the client was silent for too long")]
    Silent,
    /// The client broke the protocol, so the next message can't be found.
    #[error("the client broke the protocol: {0}")]
    Rules(&'static str),
    /// An error for which the protocol has no answer.
    #[error(transparent)]
    Refused(#[from] Error),
    /// The export or the server ends.
    #[error("the server ends the connection")]
    Over,
}

type Result<T> = std::result::Result<T, Ended>;

/// The result of the negotiation.
struct Agreed {
    lease: Lease,
    volumes: Arc<Volumes>,
    mode: Mode,
}

/// Serves a connection of a client to its end. With `tls`, it must be encrypted.
pub(crate) async fn serve<R, W>(
    mut peer: Peer,
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
        return requests(peer, reader, writer, agreed, ending).await;
    };
    let zeroes = tokio::select! {
        zeroes = haggle.until_secure() => zeroes?,
        () = is_true(ending.clone()) => return Err(Ended::Over),
    };
    let Some(zeroes) = zeroes else { return Ok(()) };
    // Bytes in the clear after STARTTLS may come from an attacker.
    if !reader.buffer().is_empty() {
        return Err(Ended::Rules("bytes between STARTTLS and its answer"));
    }
    let stream = tokio::select! {
        stream = timely(tls.acceptor().accept(tokio::io::join(reader.into_inner(), writer))) => stream?,
        () = is_true(ending.clone()) => return Err(Ended::Over),
    };
    peer.prove(stream.get_ref().1.peer_certificates());
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = buffered(reader);
    let mut haggle = Haggle::new(&mut reader, &mut writer, exports, true);
    let agreed = tokio::select! {
        agreed = haggle.agree(zeroes) => agreed?,
        () = is_true(ending.clone()) => return Err(Ended::Over),
    };
    requests(peer, reader, writer, agreed, ending).await
}

fn buffered<R: AsyncRead>(reader: R) -> BufReader<R> {
    BufReader::with_capacity(16 << 10, reader)
}

/// Serves requests, if an export was chosen.
async fn requests<R, W>(
    peer: Peer,
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
    let using = Using { client: Arc::new(peer.connect(&lease.name())), lease: Arc::new(lease) };
    let (ended, writer) = transmit(reader, writer, &volumes, using.clone(), mode, ending).await;
    // Closing may wait for a device. It comes first, so that the volume is free once the client
    // sees the end of the connection.
    volumes.crew().run(move || drop(using)).await;
    if let Some(mut writer) = writer {
        // Under TLS, the shutdown shows the client that the server ended the connection. A client
        // that doesn't read it is gone.
        drop(timeout(LAST_WORDS, writer.shutdown()).await);
    }
    ended
}

/// Waits until the value is true.
async fn is_true(mut watched: watch::Receiver<bool>) {
    if watched.wait_for(|is| *is).await.is_err() {
        // The sender is gone and never set it.
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
    /// Whether the connection is encrypted.
    secure: bool,
    structured: bool,
    /// The export for which the client selected the metadata context.
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

    /// Sends the greeting. Returns whether the answer to `NBD_OPT_EXPORT_NAME` ends in zeros.
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

    /// Reads the next valid option, and refuses invalid ones.
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

    /// Sends the greeting, and refuses all options until STARTTLS.
    ///
    /// Returns whether the answer to `NBD_OPT_EXPORT_NAME` ends in zeros. `None` if the client
    /// aborts.
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
                // `NBD_OPT_EXPORT_NAME` has no answer for an error.
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

    /// Reads the data of an option. `None` if it was too long and has been skipped.
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

    /// Finds an export, if this listener offers it.
    fn find(&self, name: &str) -> std::result::Result<Offer, Error> {
        self.exports.find(name).ok_or_else(|| Error::NoExport { name: name.to_owned() })
    }

    /// Describes an export.
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
            // `NBD_OPT_EXPORT_NAME` has no answer for an error.
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

/// Runs a job on a pool's workers, with a time limit.
///
/// After the limit the client gets an error, and the result of the job is dropped.
///
/// # Errors
/// [`Error::Busy`]: the limit passed, or the job could not run. Besides, those of the job.
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

/// The names of a pool's exports. Empty if the pool fails or takes too long.
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

/// An error with its causes, as text.
fn chain(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        // The text of a transparent error is that of its source.
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

/// An answer to send.
struct Outgoing {
    reply: Reply,
    _held: Held,
}

/// What a connection uses, and who uses it.
#[derive(Clone)]
struct Using {
    lease: Arc<Lease>,
    client: Arc<Connection>,
}

/// The requests of one connection.
struct Requests<'a> {
    volumes: &'a Volumes,
    using: Using,
    mode: Mode,
    shared: Arc<Shared>,
    slots: Arc<Semaphore>,
    share: Arc<Semaphore>,
    gone: Arc<AtomicBool>,
    answers: mpsc::UnboundedSender<Outgoing>,
}

/// Serves requests until the connection ends. Returns the writer, which the caller has to close, if
/// it is still usable.
async fn transmit<R, W>(
    mut reader: R,
    writer: W,
    volumes: &Volumes,
    using: Using,
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
    let over = using.lease.over();
    let requests = Requests {
        volumes,
        using,
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
        // Answers can no longer be sent.
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
        // A client that is gone, or is disconnected, does not wait for long operations.
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
    /// Reads requests and passes them to the workers, until the client disconnects.
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
            let (using, mode, gone) = (self.using.clone(), self.mode, Arc::clone(&self.gone));
            let (answers, began) = (self.answers.clone(), Instant::now());
            self.volumes.crew().spawn(move || {
                let gone = || gone.load(Ordering::Relaxed);
                let kind = Kind::Request(Frontend::Nbd, request.op());
                let Using { lease, client } = &using;
                let (place, node, number) = (lease.place(), 0, client.number());
                let job = Job { kind, place, node, pid: 0, uid: 0, client: number, began };
                let running = work::begin_queued(job);
                let (reply, failed) = command::run(lease.disk(), mode, &request, &payload, &gone);
                // It comes before the reply, so that the client finds it counted.
                lease.count(client, Frontend::Nbd, &request.ended(began, failed));
                drop(running);
                drop(using);
                // If there is no receiver, the client is gone.
                drop(answers.send(Outgoing { reply, _held: held }));
            });
        }
    }

    /// Waits for the memory that a request needs, and reserves it.
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

    /// Ends the reading of requests. Returns the slots that requests in progress hold.
    ///
    /// This drops the sender of answers. An answer that comes just as the receiver is dropped stays
    /// in the channel, with its slot, until the last sender is gone.
    fn into_slots(self) -> Arc<Semaphore> {
        self.slots
    }
}

/// Waits until no request is in progress, and each answer is sent or can't be sent.
async fn finish(slots: &Semaphore) {
    drop(slots.acquire_many(IN_FLIGHT as u32).await.expect("it is never closed"));
}

/// Sends answers while there may be more. Returns the writer.
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
        // Sent bytes may still be in a buffer of TLS. Their memory counts until they are flushed.
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
