//! Draws a sample, and estimates from it.

use crate::directory::Names;
use crate::metadata::{Dnodes, First, Shape};
use crate::origin::{File, Origin, Other, Visitor};
use crate::pointers::{Noise, Pointers};
use crate::report::Measured;
use crate::rule::Space;
use crate::unit::{self, Cell, Job, Unit, Work, block_size, blocks};
use crate::{Deadline, Error, Options, Result};
use ondisk::CompressKind;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Most draws.
const DRAWS_MAX: usize = 1 << 14;
/// Fewest draws. Even a small limit on reading allows them.
pub(crate) const DRAWS_MIN: usize = 8;
/// Most draws whose units are read together.
const BATCH: usize = 256;

/// The first walk: it counts, and draws units.
pub(crate) struct Survey<'a> {
    options: &'a Options,
    /// Sectors of all files in bytes, and of those that may have holes.
    weight: u64,
    sparse: u64,
    /// The sum over all units of bytes times weight.
    reading: f64,
    /// The drawn units.
    drawn: Vec<Option<(Arc<File>, u64)>>,
    /// The weight at which a draw changes next.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    noise: Noise,
    records: Vec<Whole>,
    dnodes: Dnodes,
    scratch: Vec<u8>,
}

/// What all files take with one record size if nothing is compressed and nothing is a hole.
struct Whole {
    record: u64,
    data: Space,
    blocks: u64,
    /// Indirect blocks over blocks of one size, and over compressed ones.
    pointers: [Pointers; 2],
    indirect: [Space; 2],
}

/// What a sample says.
pub(crate) struct Sample {
    pub(crate) measured: Vec<Measured>,
    pub(crate) draws: u64,
    pub(crate) read: u64,
    pub(crate) failures: Vec<(PathBuf, io::Error)>,
}

/// A number from 0 to 1, without 0.
fn uniform(noise: &mut Noise) -> f64 {
    ((noise.next() >> 11) + 1) as f64 / 2f64.powi(53)
}

impl<'a> Survey<'a> {
    pub(crate) fn new(options: &'a Options) -> Survey<'a> {
        let sector = options.sector();
        let whole = |record: &u32| {
            let record = u64::from(*record);
            Whole {
                record,
                data: Space::default(),
                blocks: 0,
                pointers: [false, true].map(|compressed| Pointers::new(sector, record, compressed)),
                indirect: [Space::default(); 2],
            }
        };
        Survey {
            options,
            weight: 0,
            sparse: 0,
            reading: 0.0,
            drawn: vec![None; DRAWS_MAX],
            next: BinaryHeap::new(),
            noise: Noise(options.seed),
            records: options.records.iter().map(whole).collect(),
            dnodes: Dnodes::new(sector),
            scratch: Vec::new(),
        }
    }

    /// Lets each draw choose between what it has and a unit of this file.
    ///
    /// After a weight `w`, a draw is any of its bytes with the same probability. A draw that chose
    /// at the weight `t` keeps its choice up to the weight `w` with the probability `t / w`.
    fn draw(&mut self, file: &Arc<File>) {
        let weight = file.size.next_multiple_of(self.options.sector());
        let after = self.weight + weight;
        let unit = self.options.unit();
        let at = |weight: u64, noise: &mut Noise| (weight as f64 / uniform(noise)) as u64;
        if self.weight == 0 {
            for (i, drawn) in self.drawn.iter_mut().enumerate() {
                let place = ((uniform(&mut self.noise) * weight as f64) as u64).min(weight - 1);
                *drawn = Some((file.clone(), place / unit * unit));
                self.next.push(Reverse((at(after, &mut self.noise), i)));
            }
        }
        while let Some(Reverse((place, i))) = self.next.peek().copied()
            && place < after
        {
            self.next.pop();
            self.drawn[i] = Some((file.clone(), (place - self.weight) / unit * unit));
            self.next.push(Reverse((at(place + 1, &mut self.noise), i)));
        }
        self.weight = after;
    }

    /// How many draws the limit on reading allows: each reads so many bytes on average.
    fn allowed(&self) -> usize {
        let each = self.reading / self.weight.max(1) as f64;
        let allowed = self.options.sample.map_or(f64::INFINITY, |most| most as f64) / each.max(1.0);
        (allowed as usize).clamp(DRAWS_MIN, DRAWS_MAX)
    }

    /// Reads the drawn units.
    ///
    /// # Errors
    /// * [`Error::Time`]: the time ended before the smallest sample was read.
    pub(crate) fn sample(
        mut self,
        origin: &dyn Origin,
        options: &Options,
        deadline: Deadline,
    ) -> Result<Sample> {
        self.drawn.truncate(self.allowed());
        let mut columns = vec![Sums::default(); options.records.len() * options.compressors.len()];
        let (mut draws, mut read, mut failures) = (0, 0, Vec::new());
        for batch in batches(&self.drawn) {
            let (jobs, times) = distinct(batch);
            let work = Work { measure: true, keep: None };
            let units = unit::read_all(origin, &jobs, options, work, deadline);
            // The units of a batch are read in the order of the trees. Those that were read before
            // the deadline are no sample of all.
            let Some(units) = units.into_iter().collect::<Option<Vec<_>>>() else { break };
            for ((job, times), unit) in jobs.iter().zip(times).zip(units) {
                match unit {
                    Err(e) => failures.push((origin.path(job.file.root, &job.file.path), e)),
                    Ok(unit) => {
                        draws += times;
                        read += unit.read;
                        self.count(job, &unit, times as f64, &mut columns);
                    }
                }
            }
            if deadline.has_passed() {
                break;
            }
        }
        if draws < DRAWS_MIN as u64 && deadline.has_passed() {
            return Err(Error::Time { read, size: self.weight });
        }
        Ok(Sample { measured: self.measured(&columns, draws), draws, read, failures })
    }

    fn count(&self, job: &Job, unit: &Unit, times: f64, columns: &mut [Sums]) {
        let len = (job.file.size - job.offset).min(self.options.unit());
        let weight = len.next_multiple_of(self.options.sector()) as f64;
        let count = self.options.compressors.len();
        for (i, (cell, sums)) in unit.cells.iter().zip(columns).enumerate() {
            let record = self.options.records[i / count].into();
            let whole = whole(job.file.size, len, record, self.options.sector());
            let share = |n: u64| n as f64 / weight;
            let pointers: u32 = cell.groups.iter().sum();
            let Cell { space, apart, .. } = cell;
            sums.add(
                times,
                match self.options.compressors[i % count].kind {
                    // How much is written is known. Only holes are not.
                    CompressKind::Off => Shares {
                        data: share(whole.asize - space.asize),
                        psize: share(whole.psize - space.psize),
                        logical: share(whole.logical - space.logical),
                        apart: 0.0,
                        pointers: f64::from(pointers) / weight,
                    },
                    _ => Shares {
                        data: share(space.asize),
                        psize: share(space.psize),
                        logical: share(space.logical),
                        apart: share(*apart),
                        pointers: f64::from(pointers) / weight,
                    },
                },
            );
        }
    }

    fn measured(self, columns: &[Sums], draws: u64) -> Vec<Measured> {
        let (weight, count) = (self.weight as f64, self.options.compressors.len());
        let dnodes = self.dnodes.finish();
        let holes = self.sparse as f64 / weight.max(1.0);
        let column = |(i, sums): (usize, &Sums)| {
            let off = self.options.compressors[i % count].kind == CompressKind::Off;
            let known = &self.records[i / count];
            let n = (draws as f64).max(1.0);
            let total = |sum: f64| weight * sum / n;
            // The share of all pointers that are no holes.
            let part = (total(sums.sum.pointers) / known.blocks.max(1) as f64).min(1.0);
            let indirect = known.indirect[usize::from(!off)];
            let scaled = |n: u64| (n as f64 * part) as u64;
            let mut metadata = dnodes;
            metadata.add(Space {
                asize: scaled(indirect.asize),
                psize: scaled(indirect.psize),
                logical: scaled(indirect.logical),
            });
            let rest = |whole: u64, sum: f64| if off { whole as f64 - total(sum) } else { total(sum) };
            Measured {
                data: rest(known.data.asize, sums.sum.data),
                error: weight * sums.half_width(n, if off { holes } else { 1.0 }),
                apart: total(sums.sum.apart),
                psize: rest(known.data.psize, sums.sum.psize),
                logical: rest(known.data.logical, sums.sum.logical),
                metadata,
            }
        };
        columns.iter().enumerate().map(column).collect()
    }
}

/// What a range of a file takes without compression and holes.
fn whole(size: u64, len: u64, record: u64, sector: u64) -> Space {
    let block = block_size(size, record);
    let count = blocks(len, block);
    Space { asize: count * block.next_multiple_of(sector), psize: count * block, logical: count * block }
}

/// Cuts draws into batches. The first is the smallest sample, and each further one is as long as
/// all before it, up to [`BATCH`]. So an end of the time loses no more than half of what was read.
fn batches<T>(mut drawn: &[T]) -> impl Iterator<Item = &[T]> {
    let mut before = 0;
    std::iter::from_fn(move || {
        let len = before.clamp(DRAWS_MIN, BATCH).min(drawn.len());
        let (batch, rest) = drawn.split_at(len);
        (drawn, before) = (rest, before + len);
        (len > 0).then_some(batch)
    })
}

/// The units of some draws, and how often each was drawn.
fn distinct(batch: &[Option<(Arc<File>, u64)>]) -> (Vec<Job>, Vec<u64>) {
    let (mut units, mut known) = (Vec::new(), HashMap::new());
    for (file, offset) in batch.iter().flatten() {
        let at = *known.entry((Arc::as_ptr(file), *offset)).or_insert_with(|| {
            units.push((Job { file: file.clone(), offset: *offset, last: false }, 0));
            units.len() - 1
        });
        units[at].1 += 1;
    }
    // Some origins open one tree after the other.
    units.sort_by_key(|(job, _)| job.file.root);
    units.into_iter().unzip()
}

/// What a unit takes, as shares of its weight.
#[derive(Debug, Clone, Copy, Default)]
struct Shares {
    data: f64,
    psize: f64,
    logical: f64,
    apart: f64,
    pointers: f64,
}

/// Sums over draws.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    sum: Shares,
    /// The sum of the squares of the shares of data.
    squares: f64,
}

impl Sums {
    fn add(&mut self, times: f64, shares: Shares) {
        let sum = &mut self.sum;
        sum.data += times * shares.data;
        sum.psize += times * shares.psize;
        sum.logical += times * shares.logical;
        sum.apart += times * shares.apart;
        sum.pointers += times * shares.pointers;
        self.squares += times * shares.data * shares.data;
    }

    /// Half of the interval of the mean share, at 95 %, with two more draws: 0 and `most`.
    fn half_width(&self, draws: f64, most: f64) -> f64 {
        let n = draws + 2.0;
        let mean = (self.sum.data + most) / n;
        let variance = ((self.squares + most * most) / n - mean * mean).max(0.0) * n / (n - 1.0);
        student(n - 1.0) * (variance / n).sqrt()
    }
}

/// The quantile of Student's distribution for an interval of 95 %, for `d` degrees of freedom.
///
/// An expansion in powers of 1/d; from seven degrees on its error is below 1 %.
fn student(d: f64) -> f64 {
    const Z: f64 = 1.959_964;
    Z + (Z.powi(3) + Z) / (4.0 * d) + (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / (96.0 * d * d)
}

impl Visitor for Survey<'_> {
    fn file(&mut self, _: &dyn Origin, file: File) -> bool {
        let sector = self.options.sector();
        for known in &mut self.records {
            let (size, record) = (file.size, known.record);
            let count = blocks(size, block_size(size, record));
            known.data.add(whole(size, size, record, sector));
            known.blocks += count;
            for (pointers, sum) in known.pointers.iter_mut().zip(&mut known.indirect) {
                sum.add(pointers.whole(count));
            }
        }
        let largest = self.options.unit();
        let (block, count) = (block_size(file.size, largest), blocks(file.size, largest));
        let first = if file.size == 0 { First::Hole } else { First::Stored };
        self.dnodes.file(&file, &Shape { block, blocks: count, used: file.size, first });
        if file.size > 0 {
            let (full, rest) = (file.size / largest, file.size % largest);
            let weight = file.size.next_multiple_of(sector);
            self.reading += full as f64 * (largest as f64).powi(2);
            self.reading += rest as f64 * rest.next_multiple_of(sector) as f64;
            self.sparse += if file.sparse { weight } else { 0 };
            self.draw(&Arc::new(file));
        }
        true
    }

    fn directory(&mut self, directory: &File, names: Names) {
        let (count, taken) = (names.len(), names.measure(self.options.sector(), &mut self.scratch));
        self.dnodes.directory(directory, count, &taken);
    }

    fn other(&mut self, file: &File, kind: Other) {
        self.dnodes.other(file, kind);
    }

    fn end(&mut self, _: &dyn Origin) -> bool {
        self.dnodes.end();
        true
    }
}

#[cfg(test)]
mod tests;
