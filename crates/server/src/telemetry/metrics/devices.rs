//! Operations of devices by class.
//!
//! # Theory
//! Only devices have these rows: the sum over a vdev's devices is that of the vdev. Only classes
//! that had an operation have rows, so most devices have a handful. Only background operations wait
//! before the device gets them, so only their classes have wait times.
//!
//! # See
//! `vdev::Priority` for the classes.

use super::{seconds, vdevs};
use api::{ClassIo, Pool};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt;

/// The name and value of each label.
type Labels = Vec<(&'static str, String)>;

/// The operations of all devices, with their labels.
fn rows(pools: &[Pool]) -> Vec<(&ClassIo, Labels)> {
    let devices = vdevs(pools).into_iter().filter(|(vdev, _)| vdev.children.is_empty());
    let of = devices.flat_map(|(vdev, own)| {
        let classes = vdev.stat.io.iter().flat_map(|io| &io.classes);
        classes.map(move |one| {
            let mut labels = Labels::from(own.clone());
            labels.extend([("class", one.class.clone()), ("op", one.io.clone())]);
            (one, labels)
        })
    });
    of.collect()
}

/// A histogram in seconds, with its exact sum if that is known.
fn histogram<'a>(
    to: &mut DescriptorEncoder,
    (name, help): (&str, &str),
    rows: impl Iterator<Item = (&'a [u64], Option<f64>, &'a Labels)>,
) -> fmt::Result {
    let mut family = to.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
    for (powers, exact, labels) in rows {
        let (buckets, count, sum) = seconds(powers);
        let mut one = family.encode_family(labels)?;
        one.encode_histogram::<NoLabelSet>(exact.unwrap_or(sum), count, &buckets, None)?;
    }
    Ok(())
}

/// Encodes the operations of all devices.
///
/// # Errors
/// Those of the encoder.
pub(super) fn encode(to: &mut DescriptorEncoder, pools: &[Pool]) -> fmt::Result {
    let rows = rows(pools);
    let help = "Operations of a device";
    let mut family = to.encode_descriptor("poolhouse_device_ops", help, None, MetricType::Counter)?;
    for (one, labels) in &rows {
        family.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(&one.ops, None)?;
    }
    let (name, help, unit) = ("poolhouse_device", "What they read, wrote or discarded", Unit::Bytes);
    let mut family = to.encode_descriptor(name, help, Some(&unit), MetricType::Counter)?;
    for (one, labels) in &rows {
        family.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(&one.bytes, None)?;
    }
    let about = ("poolhouse_device", "How long the device took");
    let exact = |one: &ClassIo| Some(one.disk_sum_ns as f64 / 1e9);
    histogram(to, about, rows.iter().map(|(one, labels)| (&one.disk[..], exact(one), labels)))?;
    let about = ("poolhouse_device_wait", "How long they waited for their turn");
    let waited = rows.iter().filter(|(one, _)| one.wait.len() > 1 || one.waiting > 0);
    histogram(to, about, waited.map(|(one, labels)| (&one.wait[..], None, labels)))?;
    type Of = fn(&ClassIo) -> u64;
    let gauges: [(&str, &str, Of); 2] = [
        ("poolhouse_device_active", "Operations that the device has now", |one| one.active),
        ("poolhouse_device_waiting", "Operations that wait for their turn now", |one| one.waiting),
    ];
    for (name, help, of) in gauges {
        let mut family = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (one, labels) in &rows {
            family.encode_family(labels)?.encode_gauge(&of(one))?;
        }
    }
    Ok(())
}
