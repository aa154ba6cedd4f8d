//! Whether the ZAPs of the MOS have space for names that users choose.
//!
//! # Theory
//! A user can compute names that collide in a ZAP, until a leaf is full ([`Zap::has_room`]). An
//! operation that adds such a name in a sync would then stop the pool. So its check sums what it is
//! going to add to each ZAP, and refuses it with [`Refusal::NamesCollide`].
//!
//! Random names don't collide so often: the names of real users always have space.
//!
//! [`Zap::has_room`]: dmu::zap::Zap::has_room

use crate::error::Refusal;
use crate::ops::props::{HAS_RECEIVED, HIDING, PropList, RECEIVED, SetAs, Setting};
use crate::ops::receive::{RECEIVING, Received};
use crate::prop::{Prop, Value, ZAP_MAXNAMELEN};
use crate::sync::Syncing;
use crate::{Error, Result};
use dmu::zap::{Add, new_has_room};
use ondisk::bookmark::BOOKMARK_WORDS_V2;
use std::collections::BTreeMap;

/// Bytes of a value of one word.
const WORD: usize = 8;

/// Entries of one ZAP: their names, and the bytes of their values.
pub(crate) type Entries = Vec<(String, usize)>;

/// The entries of properties.
fn prop_entries(props: &PropList, source: SetAs) -> Entries {
    let len = |value: &Value| match value {
        Value::Number(_) => WORD,
        Value::Text(text) => text.len() + 1,
    };
    match source {
        SetAs::Local => props.iter().map(|set| (set.name.clone(), len(&set.value))).collect(),
        SetAs::Received => {
            let values = props.iter().map(|set| (format!("{}{RECEIVED}", set.name), len(&set.value)));
            let mark = String::from_utf8_lossy(HAS_RECEIVED).into_owned();
            values.chain([(mark, WORD)]).collect()
        }
    }
}

fn adds(entries: &Entries) -> Vec<Add<'_>> {
    entries.iter().map(|(name, len)| Add { name: name.as_bytes(), value_len: *len }).collect()
}

impl Syncing<'_> {
    /// Refuses what adds these entries together to a ZAP that has no space for them.
    ///
    /// The ZAP 0 is one that is going to be created. `about` is the dataset's name.
    pub(crate) fn check_entries(&self, about: &str, zap: u64, entries: &Entries) -> Result<()> {
        let adds = adds(entries);
        let fits = if zap == 0 { new_has_room(&adds) } else { self.zap(zap)?.has_room(&adds)? };
        if fits { Ok(()) } else { Self::refuse(about, Refusal::NamesCollide) }
    }

    /// The same for one entry of a word.
    pub(crate) fn check_entry(&self, about: &str, zap: u64, name: &str) -> Result<()> {
        self.check_entries(about, zap, &vec![(name.to_owned(), WORD)])
    }

    /// The same for a name that the engine chooses, which may use the space that users leave.
    pub(crate) fn check_own_entry(&self, about: &str, zap: u64, name: &str) -> Result<()> {
        self.check_own_entries(about, zap, &vec![(name.to_owned(), WORD)])
    }

    fn check_own_entries(&self, about: &str, zap: u64, entries: &Entries) -> Result<()> {
        if zap == 0 || self.zap(zap)?.can_add(&adds(entries))? {
            return Ok(());
        }
        Self::refuse(about, Refusal::NamesCollide)
    }

    /// Checks the space for properties of a dataset or snapshot.
    pub(crate) fn check_props_room(&mut self, name: &str, props: &PropList, source: SetAs) -> Result<()> {
        let zap = if name.contains('@') {
            let (_, snap) = self.hold_snapshot(name)?;
            self.ds(snap)?.props_obj
        } else {
            let head = self.hold_head(name)?;
            let dir = self.ds(head)?.dir_obj;
            self.dir(dir)?.props_zapobj
        };
        // Properties of the engine may use the space that users leave, so that no user property
        // keeps an administrator from setting a quota.
        let is_users = |set: &&Setting| Prop::by_name(&set.name).is_none();
        let users = props.iter().filter(is_users).cloned().collect();
        self.check_entries(name, zap, &prop_entries(&users, source))?;
        self.check_own_entries(name, zap, &prop_entries(props, source))
    }

    /// Checks the space for the hidden child and the snapshot of a received stream.
    pub(crate) fn check_received_room(&mut self, what: &Received, children: u64, head: u64) -> Result<()> {
        self.check_own_entry(&what.name, children, RECEIVING)?;
        let snapshots = self.ds(head)?.snapnames_zapobj;
        self.check_entry(&what.name, snapshots, &what.snapshot)
    }

    /// Checks the space for properties of a new dataset or snapshot.
    pub(crate) fn check_new_props_room(&self, name: &str, props: &PropList) -> Result<()> {
        self.check_entries(name, 0, &prop_entries(props, SetAs::Local))
    }

    /// Checks the space for the mark that a property is inherited.
    pub(crate) fn check_inherit_room(&mut self, name: &str, property: &str, received: bool) -> Result<()> {
        if received || name.contains('@') || Prop::by_name(property).is_some() {
            return Ok(());
        }
        let head = self.hold_head(name)?;
        let dir = self.ds(head)?.dir_obj;
        let zap = self.dir(dir)?.props_zapobj;
        if self.zap(zap)?.lookup(HAS_RECEIVED)?.is_none() {
            return Ok(());
        }
        let hiding = format!("{property}{HIDING}");
        // A name that is too long for the mark gets none.
        if hiding.len() >= ZAP_MAXNAMELEN { Ok(()) } else { self.check_entry(name, zap, &hiding) }
    }

    /// Checks the space for holds: full names of snapshots, each with a tag. Absent snapshots are
    /// ignored.
    pub(crate) fn check_holds_room(&mut self, holds: &[(String, String)]) -> Result<()> {
        let mut tags: BTreeMap<&str, Entries> = BTreeMap::new();
        for (name, tag) in holds {
            tags.entry(name).or_default().push((tag.clone(), WORD));
        }
        for (name, entries) in tags {
            match self.hold_snapshot(name) {
                Ok((_, snap)) => {
                    let zap = self.ds(snap)?.userrefs_obj;
                    self.check_entries(name, zap, &entries)?;
                }
                Err(Error::NoSuchDataset { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Checks the space for bookmarks; `about` are their full names.
    pub(crate) fn check_bookmarks_room<'n>(&mut self, about: impl Iterator<Item = &'n String>) -> Result<()> {
        let mut names: BTreeMap<u64, (&str, Vec<String>)> = BTreeMap::new();
        for full in about {
            let (head, name) = self.hold_bookmarked(full)?;
            names.entry(head).or_insert((full, Vec::new())).1.push(name);
        }
        for (head, (full, names)) in names {
            self.check_head_bookmarks(full, head, names)?;
        }
        Ok(())
    }

    /// Checks the space for bookmarks of a head.
    pub(crate) fn check_head_bookmarks(&self, about: &str, head: u64, names: Vec<String>) -> Result<()> {
        let zap = self.bookmarks_zap(head)?.unwrap_or(0);
        let entries = names.into_iter().map(|name| {
            // Names that differ in case have the same hash.
            let name = if zap == 0 { name.to_ascii_uppercase() } else { name };
            (name, BOOKMARK_WORDS_V2 * WORD)
        });
        self.check_entries(about, zap, &entries.collect())
    }
}
