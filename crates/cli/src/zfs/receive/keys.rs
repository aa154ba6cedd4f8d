//! Encryption roots after a raw package (`recv_fix_encryption_hierarchy`).
//!
//! # Theory
//! A raw stream of a dataset makes it an encryption root. The package says which datasets are
//! encryption roots at the sender. The others take the root of their parent again.

use api::{DatasetChange, Settings};

use crate::cx::{Cx, Stop};
use crate::zfs::open::{HEADS, open};
use crate::zfs::package::gather::{Tree, Wish, gather};
use crate::zfs::package::{ByGuid, Member, Package};
use console::words;

const KEYLOCATION: &str = "keylocation";

/// Gives `top` and the datasets below it the encryption roots and key locations of the sender.
///
/// # Errors
/// * [`Stop::Fail`]: one can't be read or changed. That is reported.
pub(super) fn fix(cx: &mut Cx, top: &str, package: &Package, sent: &ByGuid) -> Result<(), Stop> {
    let tree = Tree::read(cx, top, package.recursive)?;
    let wish = Wish { top, recursive: package.recursive, raw: true, ..Wish::default() };
    // Parents come before their children.
    for local in gather(cx, &tree, &wish)? {
        let found = local.snaps.iter().find_map(|snap| sent.find(snap.guid));
        if let Some(member) = found.and_then(|(at, _)| package.members.get(at)) {
            one(cx, top, &local.name, member)?;
        }
    }
    Ok(())
}

/// Gives one dataset the encryption root of the package's member.
fn one(cx: &mut Cx, top: &str, name: &str, member: &Member) -> Result<(), Stop> {
    let props = ["encryption", "encryptionroot", "origin", KEYLOCATION];
    let dataset = open(cx, name, &HEADS, &props)?;
    let text = |property: &str| dataset.prop(property).map_or("-", |p| p.value(true)).to_owned();
    if matches!(&*text("encryption"), "off" | "-") {
        return Ok(());
    }
    let (is_root, is_clone) = (text("encryptionroot") == name, !matches!(&*text("origin"), "" | "-"));
    if !member.is_encroot {
        // The topmost keeps the key that came with it.
        return match is_root && name != top {
            true => change(cx, name, &DatasetChange::MoveKeys { name: name.to_owned(), own: false }),
            false => Ok(()),
        };
    }
    let mut location = text(KEYLOCATION);
    if !is_root && !is_clone {
        change(cx, name, &DatasetChange::MoveKeys { name: name.to_owned(), own: true })?;
        "prompt".clone_into(&mut location);
    }
    let wanted = member.props.as_ref().and_then(|props| props.str(KEYLOCATION));
    match wanted.filter(|wanted| *wanted != location) {
        Some(wanted) => {
            let props: Settings = vec![(KEYLOCATION.to_owned(), wanted.to_owned())];
            change(cx, name, &DatasetChange::Set { name: name.to_owned(), props, keep_mounted: true })
        }
        None => Ok(()),
    }
}

fn change(cx: &mut Cx, name: &str, change: &DatasetChange) -> Result<(), Stop> {
    match cx.service()?.change(change) {
        Ok(_) => {
            cx.changed(name);
            Ok(())
        }
        Err(error) => {
            let why = words::reason(&error.reason, &cx.clock);
            Err(super::refuse(cx, &format!("cannot set the encryption root of '{name}'"), why))
        }
    }
}
