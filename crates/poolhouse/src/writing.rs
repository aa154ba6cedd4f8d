//! File systems and volumes that are open for writing.

use crate::{Error, Pool, Result};
use ondisk::objset::ObjsetKind;
use spa::OpenHead;
use std::sync::Arc;
use zpl::{FileSystem, Orphans, Policies};
use zvol::Volume;

impl Pool {
    /// Opens a volume for writing (`zvol_open`).
    ///
    /// While a handle is alive, no other user can have the volume, and it can't be destroyed or
    /// rolled back. A pending intent log is replayed first.
    ///
    /// ```
    /// use poolhouse::{OpenOptions, Pool};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let copy = testkit::fixture_copy("zvols");
    /// # let images = copy.images();
    /// let options = OpenOptions { write: true, force: true, ..OpenOptions::default() };
    /// let pool = Pool::open(images, &options)?;
    /// let volume = pool.open_volume(pool.dataset("zvols/sparse")?.dsl())?;
    /// volume.write_at(b"written", 5000)?;
    /// volume.punch(0, 4096)?;
    /// volume.flush()?;
    /// pool.export()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// * [`Error::ReadOnly`]: the pool is not open for writing.
    /// * [`Error::Dataset`]: the dataset is a snapshot or in use, its key is not loaded, or a
    ///   property can't be read.
    /// * [`Error::Volume`]: the dataset holds no volume, or the volume's records can't be read.
    /// * [`Error::Log`], [`Error::ReplayVolume`]: the intent log can't be read or replayed.
    /// * [`Error::Object`], [`Error::Stopped`]: the intent log can't be destroyed after its replay.
    pub fn open_volume(&self, dataset: &dsl::Dataset) -> Result<Volume> {
        let head = self.take(dataset)?;
        if head.objset().kind() != ObjsetKind::Zvol {
            return Err(Error::Volume(zvol::Error::NotVolume));
        }
        replay_volume(&head)?;
        head.begin_log()?;
        Ok(Volume::open_live(&head.objset().clone(), head)?)
    }

    /// Opens a file system for writing (`zfsvfs_setup`).
    ///
    /// While a handle is alive, no other user can have the file system, and it can't be destroyed
    /// or rolled back. A pending intent log is replayed first. Then the unlinked files are freed
    /// ([`FileSystem::drain`]).
    ///
    /// # Errors
    /// * [`Error::ReadOnly`]: the pool is not open for writing.
    /// * [`Error::Dataset`]: the dataset is a snapshot or in use, or its key is not loaded.
    /// * [`Error::File`]: the dataset holds no file system, or the file system can't be read.
    /// * [`Error::Log`], [`Error::ReplayFiles`]: the intent log can't be read or replayed.
    /// * [`Error::Object`], [`Error::Stopped`]: the intent log can't be destroyed after its replay.
    pub fn open_for_writing(&self, dataset: &dsl::Dataset, policies: Policies) -> Result<FileSystem> {
        let fs = self.open_undrained(dataset, policies)?;
        fs.drain()?;
        Ok(fs)
    }

    /// Reopens a file system for writing, for a caller that had it open a moment ago.
    ///
    /// The unlinked files in `users` still have users, so they are not freed.
    ///
    /// # Errors
    /// See [`Pool::open_for_writing`].
    pub fn reopen_for_writing(
        &self,
        dataset: &dsl::Dataset,
        policies: Policies,
        users: Orphans,
    ) -> Result<FileSystem> {
        let fs = self.open_undrained(dataset, policies)?;
        fs.adopt(users);
        Ok(fs)
    }

    fn open_undrained(&self, dataset: &dsl::Dataset, policies: Policies) -> Result<FileSystem> {
        let head = self.take(dataset)?;
        replay_files(&head, &policies)?;
        head.begin_log()?;
        Ok(FileSystem::open_live(&head.objset().clone(), head, policies)?)
    }

    fn take(&self, dataset: &dsl::Dataset) -> Result<Arc<OpenHead>> {
        Ok(Arc::new(OpenHead::open(self.spa(), dataset)?))
    }

    /// Replays the intent log that a crash left in a dataset (`zil_replay`).
    ///
    /// No handle of the dataset may be open. It serves callers that then only read the dataset:
    /// they must open their handle after this call. Opening for writing also replays the log.
    /// Returns `None` if no records were pending.
    ///
    /// # Errors
    /// See [`Pool::open_volume`] and [`Pool::open_for_writing`].
    pub fn replay(&self, dataset: &dsl::Dataset) -> Result<Option<Replay>> {
        let Some(os) = dataset.objset()?.filter(|_| !dataset.is_snapshot()) else { return Ok(None) };
        if !self.spa().has_pending_log(&os)? {
            return Ok(None);
        }
        let head = self.take(dataset)?;
        let done = match head.objset().kind() {
            ObjsetKind::Zvol => replay_volume(&head),
            _ => replay_files(&head, &Policies::default()),
        }?;
        // A reader opens the state on disk, so the replayed changes must be there.
        head.live().sync_all()?;
        Ok(done)
    }
}

fn replay_files(head: &Arc<OpenHead>, policies: &Policies) -> Result<Option<Replay>> {
    let Some(log) = head.pending_log()? else { return Ok(None) };
    // The log may create objects again that wait in the list of unlinked files. So free them first.
    FileSystem::open_live(head.objset(), head.clone(), policies.clone())?.drain()?;
    let done = zpl::replay(head.objset(), &log, head.clone(), policies)?;
    head.destroy_log(done.references)?;
    Ok(Some(Replay { records: done.records, ended: done.ended.map(|e| Box::new(e) as _) }))
}

fn replay_volume(head: &Arc<OpenHead>) -> Result<Option<Replay>> {
    let Some(log) = head.pending_log()? else { return Ok(None) };
    let done = zvol::replay(head.objset(), &log, head.clone())?;
    head.destroy_log(done.references)?;
    Ok(Some(Replay { records: done.records, ended: done.ended.map(|e| Box::new(e) as _) }))
}

/// The result of replaying an intent log.
#[derive(Debug)]
pub struct Replay {
    /// Number of replayed records.
    pub records: u64,
    /// Why the replay ended early, if it did: a record that can't be replayed. The later records
    /// are lost.
    pub ended: Option<Box<dyn std::error::Error + Send + Sync>>,
}
