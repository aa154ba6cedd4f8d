//! Properties: those of a package, and those of the command line.
//!
//! # See
//! OpenZFS `zfs_setup_cmdline_props`, `zfs_receive_checkprops`.

use api::{KeyMaterial, Settings, Source};
use dsl::prop::parse::{Context, setting};
use dsl::prop::{Kind, Prop, is_user_property};
use ondisk::SPA_MAXBLOCKSIZE;
use ondisk::replay::features;

use super::begin::Head;
use super::package::Inside;
use super::plan::Plan;
use super::{CANNOT, refuse};
use crate::cx::{Cx, Stop};
use crate::zfs::newkey::new_key;
use crate::zfs::open::{HEADS, exists, open};
use crate::zfs::package::texts;

/// The properties of the command line, in its order: `-o` has a value, `-x` has none.
#[derive(Debug, Default)]
pub(super) struct Given(Vec<(String, Option<String>)>);

/// The properties that a receive asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) received: Option<Settings>,
    pub(super) local: Settings,
    pub(super) inherited: Vec<String>,
    pub(super) snapshot: Settings,
    /// The encryption of a new dataset, if it is not its parent's.
    pub(super) encryption: Settings,
    /// The key of a new encryption root.
    pub(super) key: Option<KeyMaterial>,
}

impl Given {
    /// Adds `-o name=value` (`parseprop`) or `-x name` (`parsepropname`).
    ///
    /// # Errors
    /// * [`Stop::Usage`]: the argument is malformed, or the property was given before.
    pub(super) fn add(&mut self, arg: &str, excluded: bool) -> Result<(), Stop> {
        let (name, value) = match (arg.split_once('='), excluded) {
            (Some((name, value)), false) => (name, Some(value.to_owned())),
            (None, false) => return Err(Stop::usage("missing '=' for property=value argument\n")),
            (None, true) => (arg, None),
            (Some(_), true) => return Err(Stop::usage("invalid character '=' in property argument\n")),
        };
        if self.0.iter().any(|(other, _)| other == name) {
            return Err(Stop::usage(format!("property '{name}' specified multiple times\n")));
        }
        self.0.push((name.to_owned(), value));
        Ok(())
    }

    /// Takes the value of a property out.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(other, value)| other == name && value.is_some())?;
        self.0.remove(at).1
    }

    /// Refuses properties that no receive can set.
    ///
    /// # Errors
    /// * [`Stop::Fail`]: there is one, which is reported.
    pub(super) fn check(&self, cx: &mut Cx) -> Result<(), Stop> {
        for (name, _) in &self.0 {
            let good = match Prop::by_name(name) {
                None => is_user_property(name),
                Some(Prop::Origin) => true,
                // These have checks of their own.
                Some(native) if is_of_key(native) => true,
                Some(native) => {
                    !native.desc().is_readonly() && !matches!(native, Prop::Version | Prop::Volsize)
                }
            };
            if !good {
                return Err(refuse(cx, CANNOT, format_args!("{CANNOT}: invalid property '{name}'")));
            }
        }
        Ok(())
    }
}

/// Whether a property belongs to the encryption key.
fn is_of_key(prop: Prop) -> bool {
    matches!(
        prop,
        Prop::Encryption | Prop::Keyformat | Prop::Keylocation | Prop::Pbkdf2Iters | Prop::Pbkdf2Salt
    )
}

impl Wanted {
    /// The properties for a stream. `top` says whether it is of the topmost dataset.
    ///
    /// # Errors
    /// * [`Stop::Fail`]: a property of the command line can't be set. That is reported.
    pub(super) fn of(
        cx: &mut Cx,
        given: &Given,
        (head, plan): (&Head, &Plan),
        inside: Option<&Inside>,
        top: bool,
    ) -> Result<Self, Stop> {
        let listed = inside.and_then(|inside| inside.listed(head.begin.to_guid));
        let mut wanted = Self {
            received: listed.and_then(|(member, _)| member.props.as_ref()).map(texts),
            snapshot: listed.and_then(|(_, snap)| snap.props.as_ref()).map(texts).unwrap_or_default(),
            ..Self::default()
        };
        let kind = if head.is_volume() { Kind::Volume } else { Kind::Filesystem };
        let is_there = exists(cx, plan.head(), &HEADS)?;
        let recursive = inside.is_some_and(Inside::is_recursive);
        for (name, value) in &given.0 {
            let native = Prop::by_name(name);
            let name = native.map_or(name.as_str(), |native| native.name());
            if native.is_some_and(is_of_key) {
                let pair = (name, value.as_ref());
                wanted.encryption(cx, (head, plan), (top, recursive), pair)?;
                continue;
            }
            let applies = native.is_none_or(|prop| prop.desc().is_valid_for(kind));
            match value {
                None => wanted.exclude(cx, plan, name, (native, applies, is_there))?,
                Some(_) if !applies && recursive => {}
                Some(_) if !applies => {
                    let why = format!("property '{name}' does not apply to datasets of this type");
                    return Err(refuse(cx, plan.what, why));
                }
                Some(value) if top => {
                    let context = Context { kind, creating: false, max_block: SPA_MAXBLOCKSIZE };
                    setting(name, value, context).map_err(|why| refuse(cx, plan.what, why))?;
                    wanted.local.push((name.to_owned(), value.clone()));
                }
                // Those below inherit it from the topmost.
                Some(_) => wanted.inherited.push(name.to_owned()),
            }
        }
        let inherits = |name: &String| Prop::by_name(name).is_none_or(|prop| prop.desc().is_inheritable());
        wanted.inherited.retain(inherits);
        let is_raw = head.has(features::RAW);
        if top && !is_raw && !given.0.is_empty() && plan.wants_new {
            wanted.new_key(cx, plan)?;
        }
        // Not raw, a dataset of a package was not encrypted at its sender.
        let chosen = given.0.iter().any(|(name, _)| Prop::by_name(name) == Some(Prop::Encryption));
        if plan.wants_new && !is_raw && wanted.received.is_some() && !chosen {
            wanted.encryption.push((Prop::Encryption.name().to_owned(), "off".to_owned()));
        }
        Ok(wanted)
    }

    /// Adds a property of encryption (`-o`), or leaves it out (`-x`).
    fn encryption(
        &mut self,
        cx: &mut Cx,
        (head, plan): (&Head, &Plan),
        (top, recursive): (bool, bool),
        (name, value): (&str, Option<&String>),
    ) -> Result<(), Stop> {
        if head.has(features::RAW) {
            let why = format!("encryption property '{name}' cannot be set or excluded for raw streams.");
            return Err(refuse(cx, plan.what, why));
        }
        // The first stream of each dataset decides on its encryption.
        let Some(value) = value.filter(|_| plan.wants_new || !recursive) else { return Ok(()) };
        if !plan.wants_new {
            let why = format!("encryption property '{name}' cannot be set for incremental streams.");
            return Err(refuse(cx, plan.what, why));
        }
        if top {
            let kind = if head.is_volume() { Kind::Volume } else { Kind::Filesystem };
            let context = Context { kind, creating: true, max_block: SPA_MAXBLOCKSIZE };
            setting(name, value, context).map_err(|why| refuse(cx, plan.what, why))?;
            self.encryption.push((name.to_owned(), value.clone()));
        }
        Ok(())
    }

    /// Fetches the key of a new encryption root (`zfs_crypto_create`).
    fn new_key(&mut self, cx: &mut Cx, plan: &Plan) -> Result<(), Stop> {
        let parent = plan.head().rsplit_once('/').map_or(plan.head(), |(parent, _)| parent);
        let parent = open(cx, parent, &HEADS, &["encryption"])?;
        let below = parent.prop("encryption").is_some_and(|p| !matches!(p.value(true), "off" | "-" | ""));
        let get = |what: &str| {
            self.encryption.iter().find(|(name, _)| name == what).map(|(_, value)| value.as_str())
        };
        let encrypts = get("encryption").map_or(below, |value| value != "off");
        let (format, location) = (get("keyformat").filter(|format| *format != "none"), get("keylocation"));
        if encrypts && !below && format.is_none() {
            return Err(refuse(cx, plan.what, "Keyformat required for new encryption root."));
        }
        if encrypts && format.is_some() && location.is_none_or(|location| location == "prompt") {
            let why = "Cannot use 'prompt' keylocation because stdin is in use.";
            return Err(refuse(cx, plan.what, why));
        }
        let key = new_key(cx, plan.head(), &mut self.encryption, below);
        self.key = key.map_err(|why| refuse(cx, plan.what, why))?;
        Ok(())
    }

    /// Leaves out a property (`-x`).
    fn exclude(
        &mut self,
        cx: &mut Cx,
        plan: &Plan,
        name: &str,
        (native, applies, is_there): (Option<Prop>, bool, bool),
    ) -> Result<(), Stop> {
        if !applies {
            let head = plan.head();
            writeln!(cx.err, "Warning: {head}: property '{name}' does not apply to datasets of this type");
            return Ok(());
        }
        // A value of its own holds anyway, whatever is received.
        if is_there {
            let dataset = open(cx, plan.head(), &HEADS, &[name])?;
            let source = dataset.prop(name).map(|prop| &prop.source);
            if matches!(source, Some(Source::Local | Source::Inherited(_) | Source::Temporary)) {
                return Ok(());
            }
        }
        match native.filter(|prop| !prop.desc().is_inheritable()) {
            // Without an inherited value, it is just not received.
            Some(_) => {
                if let Some(received) = &mut self.received {
                    received.retain(|(other, _)| other != name);
                }
            }
            None => self.inherited.push(name.to_owned()),
        }
        Ok(())
    }
}
