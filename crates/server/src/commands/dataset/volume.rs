//! Volumes: their sizes, and the space that is reserved for them.
//!
//! # Theory
//! A volume that isn't sparse reserves what it takes when each of its blocks is written. Its
//! reservation follows its size as long as the two match. A user who set another reservation meant
//! that one. `refreservation=auto` is the reservation that matches the size.

use dsl::ops::create::NewVolume;
use dsl::{Dsl, Prop, PropError, PropList, Setting, Value};

use ondisk::version::SPA_VERSION_REFRESERVATION;

use crate::commands::dataset::tasks::{Room, bad_value, number_of};
use crate::replies::of_dsl;
use api::{Error, Reason};

/// The default block size of a volume in bytes (`ZVOL_DEFAULT_BLOCKSIZE`).
const BLOCK: u64 = 16 << 10;
/// The parsed value of `refreservation=auto`.
const AUTO: u64 = u64::MAX;

/// The property that reserves the space of volumes in a pool of this version
/// (`zfs_which_resv_prop`).
pub(crate) fn kept_by(version: u64) -> Prop {
    if version >= SPA_VERSION_REFRESERVATION { Prop::Refreservation } else { Prop::Reservation }
}

/// A new volume (`zvol_set_volsize`). Adds its reservation to `props`, unless it is sparse or
/// `props` has one.
///
/// # Errors
/// * [`Reason::BadValue`]: the size is missing, 0, or too large.
/// * [`Reason::BadType`]: the block size is too large.
pub(crate) fn new(
    name: &str,
    props: &mut PropList,
    room: Room<'_>,
    (sparse, version): (bool, u64),
) -> Result<NewVolume, Error> {
    let block = number_of(props, Prop::Volblocksize).unwrap_or(BLOCK);
    let size = number_of(props, Prop::Volsize).ok_or_else(|| bad_value(name, &PropError::NoVolsize))?;
    if size == 0 {
        return Err(bad_value(name, &PropError::Zero(Prop::Volsize.name())));
    }
    // A size is rounded up to whole blocks.
    let size = size.checked_next_multiple_of(block);
    let size = size.ok_or_else(|| bad_value(name, &PropError::TooLarge))?;
    set(props, Prop::Volsize, size);
    let copies = number_of(props, Prop::Copies).unwrap_or(1);
    match number_of(props, Prop::Refreservation) {
        None if sparse => {}
        // Old pools without `refreservation` reserve with `reservation`.
        None if number_of(props, Prop::Reservation).is_some() && kept_by(version) == Prop::Reservation => {}
        None => set(props, kept_by(version), reservation(size, block, copies, room)),
        Some(AUTO) => set(props, Prop::Refreservation, reservation(size, block, copies, room)),
        Some(_) => {}
    }
    let block = u32::try_from(block).map_err(|_| Error::new(name, Reason::BadType))?;
    Ok(NewVolume { size, block })
}

/// Completes the new properties of a volume, or of a clone of the snapshot `name`.
///
/// It sets the value of `refreservation=auto` (`zfs_fix_auto_resv`), and the reservation that
/// follows another size (`zfs_add_synthetic_resv`).
///
/// # Errors
/// * [`Reason::NoSuchDataset`], [`Reason::BadType`]: it is not a volume.
/// * [`Reason::Io`], [`Reason::Corrupt`]: the volume's properties can't be read.
pub(crate) fn reserve(dsl: &Dsl, name: &str, props: &mut PropList, room: Room<'_>) -> Result<(), Error> {
    let by = kept_by(dsl.mos().version());
    let (to, reserved) = (number_of(props, Prop::Volsize), number_of(props, by));
    let auto = reserved == Some(AUTO) && by == Prop::Refreservation;
    if !(auto || (to.is_some() && reserved.is_none())) {
        return Ok(());
    }
    let fail = |e: dsl::Error| Error::new(name, of_dsl(&e));
    let dataset = dsl.dataset(name).map_err(fail)?;
    // A snapshot has its own size, but not its own block size.
    let head = dsl.dataset(name.split('@').next().unwrap_or(name)).map_err(fail)?;
    let of = |dataset: &dsl::Dataset, prop: Prop| {
        let property = dataset.property(prop).map_err(fail)?;
        Ok::<_, Error>(match property.map(|p| p.value) {
            Some(Value::Number(n)) => n,
            Some(Value::Text(_)) | None => 0,
        })
    };
    let (size, block) = (of(&dataset, Prop::Volsize)?, of(&head, Prop::Volblocksize)?);
    if block == 0 {
        return Err(Error::new(name, Reason::BadType));
    }
    let copies = of(&head, Prop::Copies)?.max(1);
    let most = |size: u64, copies: u64| reservation(size, block, copies, room);
    match (to, reserved) {
        (_, Some(_)) => set(props, by, most(to.unwrap_or(size), copies)),
        (Some(to), None) => {
            let own = of(&dataset, by)?;
            // OpenZFS assumes one copy here, whatever `copies` is.
            if let Some(copies) = [copies, 1].into_iter().find(|copies| own == most(size, *copies)) {
                set(props, by, most(to, copies));
            }
        }
        (None, None) => {}
    }
    Ok(())
}

/// Sets a number in a list.
fn set(props: &mut PropList, prop: Prop, n: u64) {
    props.retain(|set| set.name != prop.name());
    props.push(Setting { name: prop.name().to_owned(), value: Value::Number(n) });
}

/// The bytes of a volume when each of its blocks is written, with all indirect blocks
/// (`zvol_volsize_to_reservation`).
fn reservation(size: u64, block: u64, copies: u64, room: Room<'_>) -> u64 {
    /// The number of pointers in an indirect block of 128 KiB.
    const POINTERS: u64 = 1 << 10;
    const INDIRECT: u64 = 128 << 10;
    let mut blocks = size / block;
    // Indirect blocks have the size by which the pool's space is computed.
    let size = room(blocks, block);
    let mut indirect = 7u64;
    while blocks > 1 {
        blocks = blocks.div_ceil(POINTERS);
        indirect += blocks;
    }
    let indirect = indirect.saturating_mul((copies + 1).min(3));
    size.saturating_mul(copies).saturating_add(indirect.saturating_mul(INDIRECT))
}
