//! Parsing values as users write them: `10G`, `lz4`, `none`.

pub use super::ZFS_MAXPROPLEN;
use super::text::nicebytes;
use super::{Kind, Prop, PropKind, Value, ZAP_MAXNAMELEN, is_user_property};
use crate::error::PropError;
use crate::ops::props::Setting;
use ondisk::{SPA_MAXBLOCKSIZE, SPA_MINBLOCKSIZE, SPA_OLD_MAXBLOCKSIZE};

/// The dataset that a property is checked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// The kind of the dataset.
    pub kind: Kind,
    /// The dataset is new, so properties that are fixed at creation are allowed.
    pub creating: bool,
    /// The largest block of the pool (`spa_maxblocksize`).
    pub max_block: u64,
}

/// Parses a number with a unit, such as `10G`, `1.5M` or `4096` (`zfs_nicestrtonum`).
///
/// # Errors
/// * [`PropError::NotNumber`]: the text does not begin with a digit or a point.
/// * [`PropError::TooLarge`]: the number exceeds 64 bits.
/// * [`PropError::Suffix`]: the unit is unknown.
pub fn number(text: &str) -> Result<u64, PropError> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(PropError::NotNumber(text.to_owned()));
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if text[end..].starts_with('.') {
        let tail = end + 1;
        let end = text[tail..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |n| tail + n);
        let shift = shift(&text[end..])?;
        let digits = format!("0{}0", &text[..end]);
        let value: f64 = digits.parse().map_err(|_| PropError::NotNumber(text.to_owned()))?;
        let value = value * 2f64.powi(shift as i32);
        return if value >= u64::MAX as f64 { Err(PropError::TooLarge) } else { Ok(value as u64) };
    }
    let value: u64 = text[..end].parse().map_err(|_| PropError::TooLarge)?;
    let shift = shift(&text[end..])?;
    match value.checked_shl(shift) {
        Some(n) if n >> shift == value => Ok(n),
        _ => Err(PropError::TooLarge),
    }
}

/// The power of two of a unit.
fn shift(unit: &str) -> Result<u32, PropError> {
    const UNITS: &str = "BKMGTPEZ";
    let bad = || PropError::Suffix(unit.to_owned());
    let upper = unit.to_ascii_uppercase();
    let Some(first) = upper.chars().next() else { return Ok(0) };
    let i = UNITS.find(first).ok_or_else(bad)?;
    match &upper[first.len_utf8()..] {
        "" => {}
        "B" | "IB" if first != 'B' => {}
        _ => return Err(bad()),
    }
    Ok(10 * i as u32)
}

/// Checks a property and its value, and converts it to its stored form (`zfs_valid_proplist`).
///
/// # Errors
/// * [`PropError::Unknown`]: the name is neither a native nor a user property.
/// * [`PropError::NotForSnapshots`]: a native property is given for a snapshot.
/// * [`PropError::WrongType`]: datasets of this kind don't have the property.
/// * [`PropError::ReadOnly`]: the property is computed, or fixed at creation.
/// * [`PropError::NotOneOf`]: the value is not one of the property's names.
/// * [`PropError::TooLong`], [`PropError::NameTooLong`]: the value or the name is too long.
/// * [`PropError::NotNumber`], [`PropError::TooLarge`], [`PropError::Suffix`]: the value must be a
///   number.
/// * [`PropError::AutoForVolumes`], [`PropError::NotAuto`]: `auto` is not allowed here.
/// * [`PropError::UseNone`]: a quota of 0 is given.
/// * Others: the value violates a rule of the property; the variant names the rule.
pub fn setting(name: &str, text: &str, context: Context) -> Result<Setting, PropError> {
    let Some(prop) = Prop::by_name(name) else {
        return user_setting(name, text);
    };
    let desc = prop.desc();
    if context.kind == Kind::Snapshot {
        return Err(PropError::NotForSnapshots);
    }
    if !desc.is_valid_for(context.kind) {
        return Err(PropError::WrongType(desc.name));
    }
    if desc.is_readonly() && !(desc.is_setonce() && context.creating) {
        return Err(PropError::ReadOnly(desc.name));
    }
    let value = match desc.kind {
        PropKind::String if text.len() >= ZFS_MAXPROPLEN => return Err(PropError::TooLong(name.to_owned())),
        PropKind::String => Value::Text(text.to_owned()),
        PropKind::Index => Value::Number(
            desc.index_value(text).ok_or(PropError::NotOneOf { property: desc.name, values: desc.values })?,
        ),
        PropKind::Number => Value::Number(numeric(prop, text, context.kind)?),
    };
    check_value(prop, &value, context)?;
    Ok(Setting { name: desc.name.to_owned(), value })
}

fn user_setting(name: &str, text: &str) -> Result<Setting, PropError> {
    if !is_user_property(name) {
        return Err(PropError::Unknown(name.to_owned()));
    }
    if name.len() >= ZAP_MAXNAMELEN {
        return Err(PropError::NameTooLong(name.to_owned()));
    }
    if text.len() >= ZFS_MAXPROPLEN {
        return Err(PropError::TooLong(name.to_owned()));
    }
    Ok(Setting { name: name.to_owned(), value: Value::Text(text.to_owned()) })
}

fn numeric(prop: Prop, text: &str, kind: Kind) -> Result<u64, PropError> {
    match text {
        "none" => Ok(match prop {
            Prop::FilesystemLimit | Prop::SnapshotLimit => u64::MAX,
            _ => 0,
        }),
        "auto" => match prop {
            Prop::Refreservation if kind == Kind::Volume => Ok(u64::MAX),
            Prop::Refreservation => Err(PropError::AutoForVolumes(prop.name())),
            _ => Err(PropError::NotAuto(prop.name())),
        },
        _ => match number(text)? {
            0 if matches!(prop, Prop::Quota | Prop::Refquota) => Err(PropError::UseNone("quota/refquota")),
            n => Ok(n),
        },
    }
}

fn check_value(prop: Prop, value: &Value, context: Context) -> Result<(), PropError> {
    let name = prop.name();
    match (prop, value) {
        (Prop::Recordsize | Prop::Volblocksize, Value::Number(n)) => {
            let most = context.max_block.clamp(SPA_OLD_MAXBLOCKSIZE, SPA_MAXBLOCKSIZE);
            if !n.is_power_of_two() || !(SPA_MINBLOCKSIZE..=most).contains(n) {
                return Err(PropError::NotPowerOf2 { property: name, most: nicebytes(most) });
            }
        }
        (Prop::SpecialSmallBlocks, Value::Number(n)) => {
            let most = context.max_block.clamp(SPA_OLD_MAXBLOCKSIZE, SPA_MAXBLOCKSIZE);
            if *n != 0 && (!n.is_power_of_two() || !(SPA_MINBLOCKSIZE..=most).contains(n)) {
                let most = nicebytes(most);
                return Err(PropError::NotZeroOrPowerOf2 { property: name, value: *n, most });
            }
        }
        (Prop::Volsize, Value::Number(0)) => return Err(PropError::Zero(name)),
        (Prop::Mlslabel, Value::Text(s)) if !s.eq_ignore_ascii_case("none") => {
            return Err(PropError::NoLabels);
        }
        (Prop::Mountpoint, Value::Text(s)) if s != "none" && s != "legacy" => {
            if !s.starts_with('/') {
                return Err(PropError::NotPath(name));
            }
            if s.split('/').any(|part| part.len() >= crate::ZFS_MAX_DATASET_NAME_LEN) {
                return Err(PropError::ComponentTooLong(name));
            }
        }
        (Prop::Keylocation, Value::Text(s)) => {
            let url = ["file:///", "https://", "http://"].iter().any(|p| s.starts_with(p));
            if s != "prompt" && s != "none" && !url {
                return Err(PropError::KeyLocation);
            }
        }
        (Prop::Sharenfs | Prop::Sharesmb, Value::Text(s)) if !super::share::is_valid(prop, s) => {
            return Err(PropError::ShareOptions(name));
        }
        (Prop::Pbkdf2Iters, Value::Number(n)) if *n < MIN_PBKDF2_ITERATIONS => {
            return Err(PropError::FewIterations(MIN_PBKDF2_ITERATIONS));
        }
        (Prop::Utf8only | Prop::Normalize, Value::Number(_)) if !context.creating => {
            return Err(PropError::ReadOnly(name));
        }
        _ => {}
    }
    Ok(())
}

/// Fewest rounds of PBKDF2 (`MIN_PBKDF2_ITERATIONS`).
pub const MIN_PBKDF2_ITERATIONS: u64 = 100_000;

#[cfg(test)]
mod tests;
