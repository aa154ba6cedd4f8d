//! Lists of properties on command lines (`add_prop_list`).

use api::Settings;

use crate::cx::{Cx, Stop};
use crate::props;

/// The table of the properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Pools, including their features.
    Pool,
    /// The root file system.
    Filesystem,
}

fn put(cx: &mut Cx, message: &str) -> Stop {
    writeln!(cx.err, "{message}");
    Stop::Fail(1)
}

/// Splits `name=value`, the argument of `option`.
///
/// # Errors
/// * [`Stop::Fail`]: there is no `=`, which is reported.
pub fn split<'a>(cx: &mut Cx, option: char, arg: &'a str) -> Result<(&'a str, &'a str), Stop> {
    arg.split_once('=').ok_or_else(|| put(cx, &format!("missing '=' for -{option} option")))
}

/// Checks a property and adds it to the list under its full name (`add_prop_list`).
///
/// # Errors
/// * [`Stop::Fail`]: the table has no such property, it is in the list already, or it excludes
///   another one there. The fault is reported.
pub fn add(cx: &mut Cx, list: &mut Settings, of: Of, name: &str, value: &str) -> Result<(), Stop> {
    let normal = match of {
        Of::Pool => pool(cx, list, name, value)?,
        Of::Filesystem => {
            let native = props::find(props::DATASET, name)
                .filter(|d| d.applies(api::DatasetKind::Filesystem))
                .map(|d| d.name);
            let other = (props::is_user(name) || props::is_userquota(name)).then_some(name);
            match native.or(other) {
                Some(normal) => normal.to_owned(),
                None => {
                    return Err(put(cx, &format!("property '{name}' is not a valid filesystem property")));
                }
            }
        }
    };
    if normal == "cachefile" {
        list.retain(|(n, _)| *n != normal);
    } else if list.iter().any(|(n, _)| *n == normal) {
        return Err(put(cx, &format!("property '{name}' specified multiple times")));
    }
    list.push((normal, value.to_owned()));
    Ok(())
}

fn pool(cx: &mut Cx, list: &Settings, name: &str, value: &str) -> Result<String, Stop> {
    let desc = props::find(props::POOL, name).map(|d| d.name);
    let feature = name.starts_with("feature@");
    let Some(normal) = desc.or((feature || props::find(props::VDEV, name).is_some()).then_some(name)) else {
        return Err(put(cx, &format!("property '{name}' is not a valid pool or vdev property")));
    };
    let has = |what: &str| list.iter().find(|(n, _)| n == what).map(|(_, v)| v.as_str());
    let features = list.iter().any(|(n, _)| n.starts_with("feature@"));
    if (feature && has("version").is_some()) || (normal == "version" && features) {
        return Err(put(cx, "'feature@' and 'version' properties cannot be specified together"));
    }
    let compatible = match normal {
        "compatibility" if has("version").is_some() => Some(value),
        "version" => has("compatibility"),
        _ => None,
    };
    if compatible.is_some_and(|c| c != "legacy") {
        return Err(put(
            cx,
            "when 'version' is specified, the 'compatibility' feature may only be set to 'legacy'",
        ));
    }
    Ok(normal.to_owned())
}

/// Adds a property unless the list has it (`add_prop_list_default`).
pub fn default(list: &mut Settings, name: &str, value: &str) {
    if !list.iter().any(|(n, _)| n == name) {
        list.push((name.to_owned(), value.to_owned()));
    }
}

/// The value of a property in a list.
pub fn get<'a>(list: &'a Settings, name: &str) -> Option<&'a str> {
    list.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
}
