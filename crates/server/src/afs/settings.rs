//! How the AFS server is started, as stored with its partitions.
//!
//! # On disk
//! These user properties are set on the file system of a partition itself. Inherited and received
//! ones don't count, so a copy of a partition in another pool is not served by itself.
//!
//! | property | value |
//! |---|---|
//! | [`PARTITION`](afs::server::store::PARTITION) | the letters of the partition |
//! | `poolhouse:vicep-config` | the folder of the cell's configuration |
//! | `poolhouse:vicep-address` | the IPv4 address of both services |
//! | `poolhouse:vicep-port` | the port of the file server |
//! | `poolhouse:vicep-volume-port` | the port of the volume server |
//!
//! The pool has the property `poolhouse:afs` while one of its file systems is a partition. Without
//! it, an import does not search for any.

use crate::pools::imported::Imported;
use crate::replies::{of_dsl, of_library, of_shape};
use afs::partition::PartitionId;
use afs::server::store::PARTITION;
use api::{AfsEnable, Error, Reason};
use dsl::ops::props::{InheritProp, SetAs, SetProps};
use dsl::{Dataset, Kind, Setting, Source, SyncTask, Value};
use spa::engine::{PoolProp, TaskError};
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// The property of a pool that has partitions.
const HAS_PARTITIONS: &str = "poolhouse:afs";
const CONFIG: &str = "poolhouse:vicep-config";
const ADDRESS: &str = "poolhouse:vicep-address";
const PORT: &str = "poolhouse:vicep-port";
const VOLUME_PORT: &str = "poolhouse:vicep-volume-port";
/// The port of file servers.
const FILE_PORT: u16 = 7000;
/// The port of volume servers.
const AFSVOL_PORT: u16 = 7005;

/// How the server is started. An absent option has its default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Settings {
    /// The folder of the cell's configuration.
    pub(crate) config: Option<PathBuf>,
    /// The address of both services.
    pub(crate) address: Option<Ipv4Addr>,
    /// The port of the file server.
    pub(crate) port: Option<u16>,
    /// The port of the volume server.
    pub(crate) volume_port: Option<u16>,
}

/// A partition as its file system says.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    /// The file system.
    pub(crate) dataset: String,
    /// What its letters are.
    pub(crate) letters: String,
    /// The settings, or the property that is wrong.
    pub(crate) settings: Result<Settings, String>,
}

impl Stored {
    /// Its number, if it has one and its settings are right.
    ///
    /// # Errors
    /// What is wrong, and what to do.
    pub(crate) fn checked(&self) -> Result<(PartitionId, Settings), String> {
        let id = partition(&self.letters).map_err(|what| format!("the property {PARTITION} {what}"))?;
        Ok((id, self.settings.clone()?))
    }
}

/// The partition with this name.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn partition(name: &str) -> Result<PartitionId, String> {
    let wrong = || format!("is '{name}', which is no partition: choose a to z, or aa to iv");
    PartitionId::parse(name).ok_or_else(wrong)
}

impl Settings {
    /// The address of both services.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address.unwrap_or(Ipv4Addr::UNSPECIFIED)
    }

    /// The port of the file server.
    pub(crate) fn file_port(&self) -> u16 {
        self.port.unwrap_or(FILE_PORT)
    }

    /// The port of the volume server.
    pub(crate) fn volume_port(&self) -> u16 {
        self.volume_port.unwrap_or(AFSVOL_PORT)
    }

    /// Whether a server with these settings is the same as one with the others.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        let all = |of: &Self| (of.config.clone(), of.address(), of.file_port(), of.volume_port());
        all(self) == all(other)
    }

    /// The settings as options of the command.
    pub(crate) fn options(&self) -> String {
        let config = self.config.as_ref().map(|path| format!(" --config {}", path.display()));
        format!(
            "--address {} --port {} --volume-port {}{}",
            self.address(),
            self.file_port(),
            self.volume_port(),
            config.unwrap_or_default()
        )
    }

    /// These settings with the options of a request, which take precedence.
    ///
    /// # Errors
    /// What is wrong with an option.
    pub(crate) fn with(mut self, request: &AfsEnable) -> Result<Self, String> {
        if let Some(config) = &request.config {
            self.config = Some(folder(config).map_err(|why| format!("--config {why}"))?);
        }
        if let Some(text) = &request.address {
            self.address = Some(address(text).map_err(|why| format!("--address {why}"))?);
        }
        if let Some(number) = request.port {
            self.port = Some(nonzero(number).ok_or("--port is 0; choose 1 to 65535")?);
        }
        if let Some(number) = request.volume_port {
            self.volume_port = Some(nonzero(number).ok_or("--volume-port is 0; choose 1 to 65535")?);
        }
        if self.file_port() == self.volume_port() {
            return Err(format!(
                "both services can't have port {}; choose another one with --port or --volume-port",
                self.file_port()
            ));
        }
        Ok(self)
    }

    fn of(dataset: &Dataset) -> dsl::Result<Result<Self, String>> {
        let mut texts = Vec::new();
        for name in [CONFIG, ADDRESS, PORT, VOLUME_PORT] {
            texts.push(local(dataset, name)?.map(|text| (name, text)));
        }
        Ok(Self::of_texts(texts.into_iter().flatten()))
    }

    fn of_texts(texts: impl Iterator<Item = (&'static str, String)>) -> Result<Self, String> {
        let mut settings = Self::default();
        for (name, text) in texts {
            let wrong = |why: String| format!("the property {name} {why}");
            let number = || {
                let number = text.parse().ok().and_then(nonzero);
                number.ok_or_else(|| format!("is '{text}', which is no port: choose 1 to 65535"))
            };
            match name {
                CONFIG => settings.config = Some(folder(&text).map_err(wrong)?),
                ADDRESS => settings.address = Some(address(&text).map_err(wrong)?),
                PORT => settings.port = Some(number().map_err(wrong)?),
                _ => settings.volume_port = Some(number().map_err(wrong)?),
            }
        }
        Ok(settings)
    }
}

fn nonzero(port: u16) -> Option<u16> {
    Some(port).filter(|port| *port != 0)
}

fn folder(text: &str) -> Result<PathBuf, String> {
    if text.starts_with('/') {
        Ok(PathBuf::from(text))
    } else {
        Err(format!("is '{text}', which is no absolute path"))
    }
}

fn address(text: &str) -> Result<Ipv4Addr, String> {
    text.parse().map_err(|_| format!("is '{text}', which is no IPv4 address"))
}

/// A user property that is set on a dataset itself.
fn local(dataset: &Dataset, name: &str) -> dsl::Result<Option<String>> {
    let property = dataset.user_property(name)?.filter(|property| property.source == Source::Local);
    Ok(property.and_then(|property| match property.value {
        Value::Text(text) => Some(text),
        Value::Number(_) => None,
    }))
}

/// The partition that a dataset is.
fn of_dataset(dataset: &Dataset) -> dsl::Result<Option<Stored>> {
    let Some(letters) = local(dataset, PARTITION)? else { return Ok(None) };
    Ok(Some(Stored { dataset: dataset.name(), letters, settings: Settings::of(dataset)? }))
}

/// The partition that this file system is. `None`: it is none.
///
/// # Errors
/// * [`Reason::NoSuchDataset`], [`Reason::InvalidName`]: there is no such dataset.
/// * [`Reason::BadType`]: it is no file system.
/// * [`Reason::BadValue`]: it is in a partition.
/// * [`Reason::Io`], [`Reason::Corrupt`]: it can't be read.
pub(crate) fn stored(imported: &Imported, name: &str) -> Result<Option<Stored>, Error> {
    let read = || {
        let dataset = imported.pool.dsl().dataset(name)?;
        if dataset.is_snapshot() || dataset.head_kind()? != Some(Kind::Filesystem) {
            return Ok(Err(Reason::BadType));
        }
        Ok(match dataset.user_property(PARTITION)?.map(|property| property.source) {
            Some(Source::Inherited(from)) => {
                let what = format!("it is in '{from}', which is a partition; choose a file system beside it");
                Err(Reason::BadValue { what })
            }
            _ => Ok(of_dataset(&dataset)?),
        })
    };
    let read = imported.pool.spa().read(read);
    read.map_err(|error: dsl::Error| Error::new(name, of_dsl(&error)))?.map_err(|why| Error::new(name, why))
}

/// The partitions of a pool.
///
/// Their volumes are not looked at, so this takes no longer with many. File systems that can't be
/// read are logged and left out.
///
/// # Errors
/// The pool's properties can't be read.
pub(crate) fn partitions(imported: &Imported) -> Result<Vec<Stored>, Error> {
    let pool = imported.pool.name();
    let props = imported.pool.spa().mos().pool_props();
    let props = props.map_err(|error| Error::new(pool, of_library(&error.into())))?;
    if !props.contains_key(HAS_PARTITIONS) {
        return Ok(Vec::new());
    }
    let (mut found, mut todo) = (Vec::new(), vec![pool.to_owned()]);
    while let Some(name) = todo.pop() {
        match imported.pool.spa().read(|| visit(imported, &name)) {
            Ok((Some(stored), _)) => found.push(stored),
            Ok((None, children)) => todo.extend(children),
            Err(error) => {
                let error = api::chain(&error);
                tracing::error!(dataset = name, error, "it can't be searched for partitions of AFS");
            }
        }
    }
    found.sort_by(|a, b| a.dataset.cmp(&b.dataset));
    Ok(found)
}

/// The partition that a file system is, or its children.
fn visit(imported: &Imported, name: &str) -> dsl::Result<(Option<Stored>, Vec<String>)> {
    let dataset = imported.pool.dsl().dataset(name)?;
    if dataset.head_kind()? != Some(Kind::Filesystem) {
        return Ok((None, Vec::new()));
    }
    if let Some(stored) = of_dataset(&dataset)? {
        return Ok((Some(stored), Vec::new()));
    }
    let children = dataset.dir().child_objects()?.into_iter();
    let shown = children.filter(|(child, _)| !child.starts_with(['$', '%']));
    Ok((None, shown.map(|(child, _)| format!("{name}/{child}")).collect()))
}

fn run(imported: &Imported, name: &str, tasks: Vec<Box<dyn SyncTask + Send>>) -> Result<(), Error> {
    let live = imported.writer(name)?;
    for task in tasks {
        live.run(task).map_err(|error| match error {
            TaskError::Refused(error) => crate::replies::error_of(name, &error),
            TaskError::Stopped(_) => Error::new(name, Reason::Suspended),
        })?;
    }
    Ok(())
}

/// Makes a file system a partition with these settings. It is mounted no more.
///
/// # Errors
/// * [`Reason::Suspended`]: the pool has stopped.
/// * [`Reason::Refused`], [`Reason::Io`], [`Reason::Corrupt`]: the properties can't be set.
pub(crate) fn store(
    imported: &Imported,
    name: &str,
    id: PartitionId,
    settings: &Settings,
) -> Result<(), Error> {
    let live = imported.writer(name)?;
    let mark = PoolProp::Text(HAS_PARTITIONS.to_owned(), "on".to_owned());
    live.set(vec![mark]).map_err(|error| Error::new(name, of_shape(&error)))?;
    let text = |name: &str, value: String| Setting { name: name.to_owned(), value: Value::Text(value) };
    let letters = id.to_string().trim_start_matches("/vicep").to_owned();
    let options = [
        settings.config.as_ref().map(|path| text(CONFIG, path.display().to_string())),
        settings.address.map(|address| text(ADDRESS, address.to_string())),
        settings.port.map(|port| text(PORT, port.to_string())),
        settings.volume_port.map(|port| text(VOLUME_PORT, port.to_string())),
    ];
    let mut props: Vec<Setting> = options.into_iter().flatten().collect();
    props.push(text(PARTITION, letters));
    // `canmount=off`: the mounts of its volumes would be in the way of the server.
    props.push(Setting { name: "canmount".to_owned(), value: Value::Number(0) });
    run(imported, name, vec![Box::new(SetProps { name: name.to_owned(), props, source: SetAs::Local })])
}

/// Makes a file system a partition no more. Its volumes stay, and so does `canmount=off`.
///
/// # Errors
/// Those of [`store`].
pub(crate) fn forget(imported: &Imported, name: &str) -> Result<(), Error> {
    let inherit = |property: &&str| -> Box<dyn SyncTask + Send> {
        let property = (*property).to_owned();
        Box::new(InheritProp { name: name.to_owned(), property, received: false })
    };
    let tasks = [PARTITION, CONFIG, ADDRESS, PORT, VOLUME_PORT].iter().map(inherit).collect();
    run(imported, name, tasks)?;
    if partitions(imported)?.is_empty() {
        let mark = PoolProp::Text(HAS_PARTITIONS.to_owned(), String::new());
        imported.writer(name)?.set(vec![mark]).map_err(|error| Error::new(name, of_shape(&error)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: stored options are read back, and a wrong one is named with what is allowed.
    #[test]
    fn stored_options() {
        let of = |texts: &[(&'static str, &str)]| {
            Settings::of_texts(texts.iter().map(|(name, text)| (*name, (*text).to_owned())))
        };
        let all = of(&[(CONFIG, "/etc/x"), (ADDRESS, "10.0.0.1"), (PORT, "7100"), (VOLUME_PORT, "7105")]);
        let all = all.unwrap();
        assert_eq!(all.options(), "--address 10.0.0.1 --port 7100 --volume-port 7105 --config /etc/x");
        assert_eq!(of(&[]).unwrap(), Settings::default());
        for (name, text) in
            [(CONFIG, "etc"), (ADDRESS, "::1"), (PORT, "0"), (PORT, "65536"), (VOLUME_PORT, "x")]
        {
            let error = of(&[(name, text)]).unwrap_err();
            assert!(error.contains(name) && error.contains(&format!("'{text}'")), "{error}");
        }
    }

    /// Goal: options of a request override stored ones, and wrong ones are refused by name.
    #[test]
    fn options_of_requests() {
        let stored = Settings { port: Some(7100), ..Settings::default() };
        let request = AfsEnable { address: Some("127.0.0.2".to_owned()), ..AfsEnable::default() };
        let settings = stored.clone().with(&request).unwrap();
        assert_eq!((settings.file_port(), settings.address()), (7100, Ipv4Addr::new(127, 0, 0, 2)));
        assert!(!settings.agrees(&stored));
        assert!(Settings::default().agrees(&Settings { port: Some(FILE_PORT), ..Settings::default() }));
        let refused = [
            AfsEnable { config: Some("here".to_owned()), ..AfsEnable::default() },
            AfsEnable { address: Some("host".to_owned()), ..AfsEnable::default() },
            AfsEnable { port: Some(0), ..AfsEnable::default() },
            AfsEnable { volume_port: Some(0), ..AfsEnable::default() },
            AfsEnable { volume_port: Some(7100), ..AfsEnable::default() },
        ];
        for request in refused {
            let error = stored.clone().with(&request).unwrap_err();
            assert!(error.contains("--"), "{error}");
        }
        assert!(partition("/vicepab").is_ok() && partition("zz").is_err() && partition("").is_err());
    }
}
