//! Sending snapshots, and receiving them in the same pool or another one.
//!
//! # Theory
//! Each step is repeatable, as a killed actor may have done a part of it. It then finds what the
//! receive has left. It resumes that, or gives it up and begins anew.
//!
//! Whatever fails, the head and its snapshots stay as they were, until the receive is complete.

use std::collections::BTreeSet;
use std::sync::Arc;

use dmu::NewObject;
use dsl::ops::create::Create;
use dsl::ops::destroy::{DestroyHead, DestroySnapshots};
use dsl::ops::snapshot::Snapshot;
use dsl::{Need, Refusal};
use ondisk::{DmuType, Nvlist, ObjNum};
use spa::engine::TaskError;
use stream::{
    Forms, Options, Origin, Reader, ReceiveError, ReceiveOptions, Receiving, Resume, abort, send, token,
};

use super::Failure;
use super::life::Life;
use super::model;
use super::pool::{FILLER, SoakPool, file_system};
use super::transfer::Transfer;

/// Bytes of the filler that are written at once.
const PIECE: u64 = 4 << 20;
/// Bytes that must be free so that a receive begins, and a little more.
const TO_BEGIN: u64 = 256 << 10;
/// Less than this is not written.
const LITTLE: u64 = 64 << 10;
/// The filler's objects, above those of a file system.
const FILLED: [ObjNum; 2] = [ObjNum(1000), ObjNum(1001)];

impl Life {
    /// Sends a snapshot and receives it.
    pub(super) fn receive(&self, t: &Transfer) -> Result<(), Failure> {
        let target = self.pool_of(&t.to);
        if target.token(&t.to)?.is_some() {
            self.note("crashed, kept");
            if self.steps().is_multiple_of(2) {
                return self.resume_receive(t);
            }
            target.abort(&t.to)?;
        }
        target.receive(t, &self.stream(t, None)?)?;
        self.expect_received(t)
    }

    /// Receives a stream that breaks off at so many thousandths of its records.
    pub(super) fn break_off(&self, t: &Transfer, at: u64) -> Result<(), Failure> {
        let target = self.pool_of(&t.to);
        self.give_up(&t.to)?;
        let before = target.see(&t.to)?;
        let stream = self.stream(t, None)?;
        // The first record after BEGIN comes whole, and END does not come.
        let mut reader = Reader::new(&stream[..]);
        let (begin, first) = (reader.next_packet()?.is_some(), reader.next_packet()?.is_some());
        let (first_end, last) = (reader.position() as usize, stream.len() - 1);
        if !begin || !first || first_end > last {
            return Err("the stream has no records".into());
        }
        let part = first_end + (last - first_end) * at as usize / 1000;
        match target.receive(t, &stream[..part]) {
            Err(e) if matches!(e.downcast_ref(), Some(ReceiveError::Resumable { .. })) => {}
            Err(e) => return Err(e),
            Ok(()) => return Err("a part of a stream is received".into()),
        }
        if target.token(&t.to)?.is_none() {
            return Err("what was received can't be resumed".into());
        }
        match target.see(&t.to)? == before {
            true => Ok(()),
            false => Err("a part of a stream is visible".into()),
        }
    }

    /// Sends and receives the rest of a stream.
    pub(super) fn resume_receive(&self, t: &Transfer) -> Result<(), Failure> {
        let target = self.pool_of(&t.to);
        let token = target.token(&t.to)?.ok_or("there is nothing to resume")?;
        target.receive(t, &self.stream(t, Some(&token))?)?;
        self.expect_received(t)
    }

    /// Gives up what is left of a receive, if it is left.
    pub(super) fn give_up(&self, to: &str) -> Result<(), Failure> {
        let target = self.pool_of(to);
        match target.token(to)? {
            Some(_) => target.abort(to),
            None => Ok(()),
        }
    }

    /// Receives a snapshot in a pool that has space for only a part of the stream. When it runs out
    /// of space, an older snapshot is destroyed, and the receive resumed.
    pub(super) fn receive_cramped(&self, t: &Transfer, part: u64) -> Result<(), Failure> {
        let target = self.pool_of(&t.to);
        self.give_up(&t.to)?;
        let before = target.see(&t.to)?;
        let stream = self.stream(t, None)?;
        let beyond = (stream.len() as u64).saturating_sub(TO_BEGIN);
        target.fill(if part < 100 { part << 10 } else { TO_BEGIN + beyond * part / 4000 })?;
        match target.receive(t, &stream) {
            Ok(()) => target.drop_filler()?,
            Err(e) => {
                let error = e.downcast_ref::<ReceiveError>();
                if !error.is_some_and(is_out_of_space) {
                    return Err(e);
                }
                let kept = matches!(error, Some(ReceiveError::Resumable { .. }));
                let token = target.token(&t.to)?;
                if token.is_some() != kept {
                    return Err(format!("kept is {kept}, and the token {token:?}: {e}").into());
                }
                self.note(if kept { "out of space, kept" } else { "out of space" });
                target.live()?.sync_anew()?;
                if target.see(&t.to)? != before {
                    return Err("a receive that ran out of space has changed something".into());
                }
                target.drop_filler()?;
                target.receive(t, &self.stream(t, token.as_ref())?)?;
            }
        }
        self.expect_received(t)
    }

    /// The stream of a snapshot, or the rest that a token asks for.
    fn stream(&self, t: &Transfer, token: Option<&Nvlist>) -> Result<Vec<u8>, Failure> {
        let dsl = self.pool_of(&t.snapshot).live()?.dsl();
        let from = dsl.dataset(&t.snapshot)?;
        let base = t.base.as_ref().map(|base| dsl.dataset(base)).transpose()?;
        let (mut forms, mut resume) = (t.forms, None);
        if let Some(token) = token {
            let guids = (token.u64("toguid"), token.u64("fromguid"));
            if guids != (Some(from.phys().guid), base.as_ref().map(|base| base.phys().guid)) {
                return Err(format!("the token is for {guids:x?}").into());
            }
            let has = |name| token.has(name);
            forms = Forms {
                large_blocks: has("largeblockok"),
                embedded: has("embedok"),
                compressed: has("compressok"),
                raw: has("rawok"),
            };
            let at = |name: &'static str| token.u64(name).ok_or(format!("the token has no {name}"));
            resume =
                Some(Resume { object: ObjNum(at("object")?), offset: at("offset")?, bytes: at("bytes")? });
        }
        let origin = base.map(|base| Origin::of_snapshot(&from, &base)).transpose()?;
        let mut stream = Vec::new();
        send(&from, &Options { origin, forms, resume, ..Options::default() }, &mut stream)?;
        Ok(stream)
    }

    /// Compares what was received with the model, and with the snapshot that was sent.
    fn expect_received(&self, t: &Transfer) -> Result<(), Failure> {
        let (source, target) = (self.pool_of(&t.snapshot), self.pool_of(&t.to));
        target.unlock()?;
        target.compare_head(&t.to)?;
        if target.token(&t.to)?.is_some() {
            return Err("it was received, and can still be resumed".into());
        }
        let guid = |pool: &SoakPool, name: &str| -> Result<u64, Failure> {
            Ok(pool.live()?.dsl().dataset(name)?.phys().guid)
        };
        match guid(source, &t.snapshot)? == guid(target, &received_as(t)?)? {
            true => Ok(()),
            false => Err("it has another guid".into()),
        }
    }
}

/// The full name of the snapshot that a stream becomes.
fn received_as(t: &Transfer) -> Result<String, Failure> {
    let (_, snapshot) = t.snapshot.split_once('@').ok_or("it names no snapshot")?;
    Ok(format!("{}@{snapshot}", t.to))
}

fn is_out_of_space(error: &ReceiveError) -> bool {
    match error {
        ReceiveError::Resumable { source } => is_out_of_space(source),
        ReceiveError::Refused(dsl::Error::Refused { why, .. }) => *why == Refusal::NoSpace,
        _ => false,
    }
}

impl SoakPool {
    fn receive(&self, t: &Transfer, stream: &[u8]) -> Result<(), Failure> {
        let options = ReceiveOptions {
            name: received_as(t)?,
            force: true,
            resumable: t.resumable,
            ..ReceiveOptions::default()
        };
        let spa = self.spa.as_ref().ok_or("the pool is not open")?;
        Ok(Receiving::new(spa, stream, &options)?.finish()?)
    }

    /// Destroys what a receive has left, and checks that it is gone.
    fn abort(&self, to: &str) -> Result<(), Failure> {
        abort(self.spa.as_ref().ok_or("the pool is not open")?, to)?;
        match self.token(to)? {
            None => Ok(()),
            Some(_) => Err("it was given up, and can still be resumed".into()),
        }
    }

    /// The token of a receive into a head, if it can be resumed.
    fn token(&self, head: &str) -> Result<Option<Nvlist>, Failure> {
        let token = self.live()?.read(|dsl| match dsl.dataset(head) {
            Err(dsl::Error::NoSuchDataset { .. }) => Ok(None),
            head => head?.resume_token(),
        })?;
        Ok(token.map(|token| token::decode(&token)).transpose()?)
    }

    /// The heads with a part of a stream that can be resumed.
    ///
    /// # Errors
    /// [`Failure`]: there is a part that can't be resumed, or the pool can't be read.
    pub(super) fn partials(&self) -> Result<BTreeSet<String>, Failure> {
        self.live()?.read(|dsl| {
            let mut found = BTreeSet::new();
            for dataset in dsl.list_sorted(None, &dsl::ListOptions::default())?.whole()? {
                if dataset.resume_token()?.is_some() {
                    found.insert(dataset.name());
                } else if dataset.is_inconsistent()
                    || dataset.dir().child(dsl::ops::receive::RECEIVING)?.is_some()
                {
                    return Err(format!("{} has a part that can't be resumed", dataset.name()).into());
                }
            }
            Ok(found)
        })
    }

    fn filler(&self) -> String {
        format!("{}/{FILLER}", self.model.name())
    }

    /// Fills the pool, mostly by an older snapshot, so that only `free` bytes are left.
    fn fill(&self, free: u64) -> Result<(), Failure> {
        let (name, live) = (self.filler(), self.live()?);
        let (contents, props) = (Arc::new(file_system()), Vec::new());
        self.run(Create { name: name.clone(), contents, props, crypt: None, enforce_limits: false })?;
        let [old, new] = FILLED;
        // A snapshot needs some space itself.
        self.fill_with(old, free + PIECE)?;
        self.run(Snapshot { names: vec![format!("{name}@old")], ..Snapshot::default() })?;
        let owned = live.dsl().heads().own(&live.dsl().dataset(&name)?)?;
        let tx = live.tx(1)?;
        owned.objset().free_object(&tx, old)?;
        drop((tx, owned));
        self.fill_with(new, free)
    }

    /// Writes to an object of the filler, until only `free` bytes are left.
    fn fill_with(&self, object: ObjNum, free: u64) -> Result<(), Failure> {
        let (name, live) = (self.filler(), self.live()?);
        let owned = live.dsl().heads().own(&live.dsl().dataset(&name)?)?;
        let bytes = model::bytes(free, PIECE);
        let spec = NewObject { block_size: 1 << 17, ..NewObject::new(DmuType::PLAIN_FILE_CONTENTS) };
        let tx = live.tx(PIECE)?;
        let dnode = owned.objset().claim_object(&tx, object, &spec)?;
        drop(tx);
        for at in 0.. {
            live.sync_all()?;
            let space = live.read(|dsl| Ok::<_, dsl::Error>(dsl.dataset(&name)?.dir().space_available()))?;
            let more = space.saturating_sub(free).min(PIECE);
            if more < LITTLE {
                break;
            }
            let tx = match live.tx_for(&owned, Need::growing(more)) {
                Err(TaskError::Refused(_)) => break,
                tx => tx?,
            };
            dnode.write_at(&tx, at * PIECE, &bytes[..more as usize])?;
        }
        Ok(())
    }

    /// Destroys the filler and its snapshot, if they are there.
    pub(super) fn drop_filler(&self) -> Result<(), Failure> {
        let name = self.filler();
        let there = |name: &str| -> Result<bool, Failure> {
            match self.live()?.read(|dsl| dsl.dataset(name)) {
                Err(dsl::Error::NoSuchDataset { .. }) => Ok(false),
                found => Ok(found.map(|_| true)?),
            }
        };
        let snapshot = format!("{name}@old");
        if there(&snapshot)? {
            self.run(DestroySnapshots { names: vec![snapshot], defer: false })?;
        }
        if there(&name)? {
            self.run(DestroyHead { name })?;
        }
        Ok(())
    }
}
