//! Properties of vdevs, as users set them (`vdev_prop_t`).

use dsl::prop::parse::ZFS_MAXPROPLEN;
use spa::engine::VdevValue;

use api::settings::pool::nice_number;

/// The longest name of a user property (`ZAP_MAXNAMELEN`).
const NAME_MAX: usize = 256;
/// Properties that can't be set.
const READ_ONLY: &str = "name capacity state guid asize psize ashift size free allocated expandsize fragmentation bootsize parity devid \
    physpath encpath fru parent children numchildren read_errors write_errors checksum_errors initialize_errors null_ops read_ops write_ops \
    free_ops claim_ops trim_ops null_bytes read_bytes write_bytes free_bytes claim_bytes trim_bytes removing raidz_expanding trim_support \
    trim_errors slow_ios";

/// Whether a name may be that of a user property (`vdev_prop_user`).
fn is_user(name: &str) -> bool {
    let valid = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-_.:".contains(&c);
    name.contains(':') && name.bytes().all(valid)
}

/// Checks one property of a vdev.
///
/// # Errors
/// In OpenZFS's words: the property is unknown or read-only, or can't have this value.
pub fn check(name: &str, value: &str) -> Result<VdevValue, String> {
    match name {
        "comment" if value.len() >= ZFS_MAXPROPLEN => Err(format!("'{name}' is too long")),
        "comment" => Ok(VdevValue::Text(value.to_owned())),
        "allocating" | "failfast" => match value {
            "on" => Ok(VdevValue::Number(1)),
            "off" => Ok(VdevValue::Number(0)),
            _ => Err(format!("'{name}' must be one of 'on | off'")),
        },
        "checksum_n" | "checksum_t" | "io_n" | "io_t" | "slow_io_n" | "slow_io_t" => match value {
            "none" => Ok(VdevValue::Number(u64::MAX)),
            "auto" => Err(format!("'auto' is invalid value for '{name}'")),
            value => nice_number(value).map(VdevValue::Number),
        },
        "path" => Err("setting the path of a device is not in this release".to_owned()),
        _ if READ_ONLY.split_whitespace().any(|n| n == name) => Err(format!("'{name}' is readonly")),
        _ if !is_user(name) => Err(format!("invalid property: '{name}'")),
        _ if name.len() >= NAME_MAX => Err(format!("property name '{name}' is too long")),
        _ if value.len() >= ZFS_MAXPROPLEN => Err(format!("property value '{value}' is too long")),
        _ if value.is_empty() => Ok(VdevValue::Gone),
        _ => Ok(VdevValue::Text(value.to_owned())),
    }
}
