//! Reads everything.

use crate::dedup::{Saving, Table};
use crate::directory::Names;
use crate::metadata::{Dnodes, First, Shape};
use crate::origin::{File, Origin, Other, Visitor};
use crate::pointers::{PER_BLOCK, Pointers};
use crate::report::Measured;
use crate::rule::Space;
use crate::unit::{self, Job, Unit, Work, block_size, blocks};
use crate::{Deadline, Failures, Options};
use ondisk::CompressKind;
use std::sync::Arc;

/// Units that are read before their results are counted.
const BATCH: usize = 1024;

/// A walk that reads all files.
pub(crate) struct Pass<'a> {
    options: &'a Options,
    /// Compress everything, not only what [`Pass::table`] keeps.
    measure: bool,
    table: Option<Table>,
    deadline: Deadline,
    late: bool,
    read: u64,
    jobs: Vec<Job>,
    /// One for each record size and compressor.
    columns: Vec<Column>,
    /// The file whose units are being counted can't be read.
    failed: bool,
    failures: Failures,
    scratch: Vec<u8>,
}

/// What reading everything found.
pub(crate) struct Whole {
    /// By record size and compressor, if everything was measured.
    pub(crate) measured: Vec<Measured>,
    /// If equal records were searched.
    pub(crate) savings: Option<Vec<Saving>>,
    /// Bytes that were read.
    pub(crate) read: u64,
}

/// Counts for one record size and compressor.
struct Column {
    record: u64,
    pointers: Pointers,
    dnodes: Dnodes,
    data: Space,
    indirect: Space,
    apart: u64,
    /// The file whose units are being counted.
    file: Space,
    file_apart: u64,
    lowest: Vec<u32>,
    payload: Option<u8>,
}

impl<'a> Pass<'a> {
    pub(crate) fn new(
        options: &'a Options,
        measure: bool,
        table: Option<Table>,
        deadline: Deadline,
    ) -> Pass<'a> {
        let columns = options.records.iter().flat_map(|record| {
            options.compressors.iter().map(|by| {
                let (record, sector) = (u64::from(*record), options.sector());
                Column {
                    record,
                    pointers: Pointers::new(sector, record, by.kind != CompressKind::Off),
                    dnodes: Dnodes::new(sector),
                    data: Space::default(),
                    indirect: Space::default(),
                    apart: 0,
                    file: Space::default(),
                    file_apart: 0,
                    lowest: Vec::new(),
                    payload: None,
                }
            })
        });
        let columns = if measure { columns.collect() } else { Vec::new() };
        let (jobs, failures) = (Vec::new(), Failures::default());
        Pass {
            options,
            measure,
            table,
            deadline,
            late: false,
            read: 0,
            jobs,
            columns,
            failed: false,
            failures,
            scratch: Vec::new(),
        }
    }

    /// Reads the units that wait. False if the time ended.
    fn flush(&mut self, origin: &dyn Origin) -> bool {
        let jobs = std::mem::take(&mut self.jobs);
        let keep = self.table.as_ref().map(Table::most);
        let work = Work { measure: self.measure, keep: keep.as_deref() };
        let units = unit::read_all(origin, &jobs, self.options, work, self.deadline);
        for (job, unit) in jobs.iter().zip(units) {
            match unit {
                None => {
                    self.late = true;
                    return false;
                }
                Some(Err(e)) if !self.failed => {
                    self.failed = true;
                    self.failures.add(&origin.path(job.file.root, &job.file.path), e);
                }
                Some(Err(_)) => {}
                Some(Ok(unit)) => self.count(job, unit),
            }
            if job.last {
                self.end(&job.file);
            }
        }
        true
    }

    fn count(&mut self, job: &Job, unit: Unit) {
        self.read += unit.read;
        if let Some(table) = &mut self.table {
            table.add(unit.kept, &unit.zeros);
        }
        for (column, cell) in self.columns.iter_mut().zip(unit.cells) {
            let group = PER_BLOCK * block_size(job.file.size, column.record);
            let first = (job.offset / group) as usize;
            let need = first + cell.groups.len();
            if column.lowest.len() < need {
                column.lowest.resize(need, 0);
            }
            let into = &mut column.lowest[first..need];
            into.iter_mut().zip(&cell.groups).for_each(|(sum, n)| *sum += n);
            column.file.add(cell.space);
            column.file_apart += cell.apart;
            column.payload = cell.payload;
        }
    }

    /// Counts a file whose units have been counted.
    fn end(&mut self, file: &File) {
        let left_out = std::mem::take(&mut self.failed);
        for column in &mut self.columns {
            column.end(file, left_out);
        }
    }

    /// What everything takes, if it was measured, and what equal records save.
    ///
    /// # Errors
    /// The time ended. Holds the number of bytes that were read.
    pub(crate) fn finish(self, failures: &mut Failures) -> Result<Whole, u64> {
        if self.late {
            return Err(self.read);
        }
        failures.append(self.failures);
        let savings = self.table.map(|table| table.savings(self.options.compressors.len()));
        let measured = self.columns.into_iter().map(Column::measured).collect();
        Ok(Whole { measured, savings, read: self.read })
    }
}

impl Column {
    fn end(&mut self, file: &File, left_out: bool) {
        let (space, apart) = (std::mem::take(&mut self.file), std::mem::take(&mut self.file_apart));
        let (lowest, payload) = (std::mem::take(&mut self.lowest), self.payload.take());
        if left_out {
            return;
        }
        let block = block_size(file.size, self.record);
        let count = blocks(file.size, block);
        let indirect = match count > 1 {
            true => self.pointers.tree(lowest.iter().map(|n| u64::from(*n))),
            false => Space::default(),
        };
        let first = match (lowest.iter().any(|n| *n > 0), payload) {
            (false, _) => First::Hole,
            (true, Some(payload)) if count == 1 => First::Embedded(payload),
            (true, _) => First::Stored,
        };
        self.data.add(space);
        self.apart += apart;
        self.indirect.add(indirect);
        let used = space.asize + indirect.asize;
        self.dnodes.file(file, &Shape { block, blocks: count, used, first });
    }

    fn measured(self) -> Measured {
        let mut metadata = self.dnodes.finish();
        metadata.add(self.indirect);
        Measured {
            data: self.data.asize as f64,
            apart: self.apart as f64,
            psize: self.data.psize as f64,
            logical: self.data.logical as f64,
            error: 0.0,
            metadata,
        }
    }
}

impl Visitor for Pass<'_> {
    fn file(&mut self, origin: &dyn Origin, file: File) -> bool {
        let (file, unit) = (Arc::new(file), self.options.unit());
        let mut offset = 0;
        while offset < file.size {
            let last = file.size - offset <= unit;
            self.jobs.push(Job { file: file.clone(), offset, last });
            offset += unit;
            if self.jobs.len() >= BATCH && !self.flush(origin) {
                return false;
            }
        }
        if file.size == 0 {
            // Its dnode keeps the place among the others.
            self.jobs.push(Job { file, offset: 0, last: true });
        }
        true
    }

    fn directory(&mut self, directory: &File, names: Names) {
        if self.measure {
            let (count, taken) = (names.len(), names.measure(self.options.sector(), &mut self.scratch));
            for column in &mut self.columns {
                column.dnodes.directory(directory, count, &taken);
            }
        }
    }

    fn other(&mut self, file: &File, kind: Other) {
        for column in &mut self.columns {
            column.dnodes.other(file, kind);
        }
    }

    fn end(&mut self, origin: &dyn Origin) -> bool {
        let done = self.flush(origin);
        self.columns.iter_mut().for_each(|column| column.dnodes.end());
        done
    }
}
